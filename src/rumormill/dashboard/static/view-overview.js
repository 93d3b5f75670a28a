// Is it well? One sentence, the figures that matter, and at most twelve charts: only those for which
// the source has anything to show.

import { LineChart } from "./charts.js";
import { bars, bytes, card, columns, count, el, fill, moment, peerName, say, seconds, total } from "./dom.js";

const rate = (value) => `${count(value)}/s`;
const CHARTS = [
  { title: "Deliveries", show: rate, lines: [{ name: "deliveries", label: "", colour: 1 }] },
  { title: "Time from publication to delivery", show: seconds,
    lines: [{ name: "p50", label: "half", colour: 1 }, { name: "p99", label: "99 %", colour: 2, peak: true }] },
  { title: "Bytes sent", show: (value) => `${bytes(value)}/s`,
    lines: [{ name: "bytes_data", label: "data", colour: 1 }, { name: "bytes_control", label: "control", colour: 2 }] },
  { title: "Copies per delivery", show: count, lines: [{ name: "copies", label: "", colour: 5 }] },
  { title: "Waiting in queues", quiet: true, show: bytes, lines: [{ name: "queue", label: "", colour: 4 }] },
  { title: "Log", show: rate, lines: [{ name: "appends", label: "appends", colour: 1 },
    { name: "fsync", label: "fsync", colour: 2, right: true, show: seconds }] },
  { title: "Lacking, to be fetched by sync", quiet: true, show: count, lines: [{ name: "backlog", label: "events", colour: 3 }] },
  { title: "Readers behind the topics", quiet: true, show: count, lines: [{ name: "lag", label: "offsets", colour: 3 }] },
  { title: "This process", show: (value) => `${count(value * 100)} %`, lines: [{ name: "cpu", label: "processor", colour: 1 },
    { name: "rss", label: "memory", colour: 2, right: true, show: bytes }] },
];

class Tile {
  constructor(name) {
    this.value = el("dd", {}, "–");
    this.note = el("div", { className: "note" });
    this.root = el("dl", { className: "tile" }, el("dt", {}, name), this.value, this.note);
  }

  set(value, note = "") {
    say(this.value, value);
    say(this.note, note);
    this.note.title = note;
  }
}

const listed = (tableOf, show = count) =>
  Object.entries(tableOf ?? {}).filter(([, value]) => value).sort((a, b) => b[1] - a[1])
    .map(([name, value]) => `${show(value)} ${name}`).join(", ");

class Overview {
  constructor(root, app) {
    this.app = app;
    this.sentence = el("h1", { className: "sentence" }, "Waiting for the first figures");
    this.under = el("p", { className: "soft small" });
    const names = ["Deliveries", "Half within", "99 % within", "Copies per delivery", "Sent", "Peers", "Dropped", "Disk", "Refused"];
    this.tiles = names.map((name) => new Tile(name));
    this.charts = CHARTS.map((chart) => new LineChart({ ...chart, app }));
    for (const chart of this.charts) chart.root.hidden = true;
    this.causes = card("Copies by cause");
    this.drops = card("");
    this.degrees = card("How many mesh neighbours peers have");
    this.scores = card("Scores of peers");
    this.marks = card("What happened");
    this.lists = [this.causes, this.drops, this.degrees, this.scores];
    root.append(
      el("div", {}, this.sentence, this.under),
      el("div", { className: "tiles" }, this.tiles.map((tile) => tile.root)),
      el("div", { className: "grid" }, this.charts.slice(0, 3).map((chart) => chart.root), this.causes, this.drops,
        this.degrees, this.scores, this.charts.slice(3).map((chart) => chart.root), this.marks),
    );
  }

  destroy() {
    for (const chart of this.charts) chart.destroy();
  }

  update() {
    const { store } = this.app;
    const get = (name) => store.get(name) ?? {};
    const [well, totals, source, clock] = [get("well"), get("totals"), get("source"), get("clock")];
    if (!store.get("source") && !well.sentence) return;
    const sentence = well.sentence ?? "Nothing is known yet";
    say(this.sentence, sentence.charAt(0).toUpperCase() + sentence.slice(1));
    this.sentence.className = `sentence ${well.ok ? "well" : well.ok === false ? "ill" : ""}`;
    say(this.under, [source.command ?? source.title, source.version ? `version ${source.version}` : "",
      clock.now === undefined ? "" : `at ${moment(clock.now, clock)}`].filter(Boolean).join(" · "));
    this.figures(totals, get("latency"), get("process"), store.get("series"));
    const series = store.get("series");
    for (const chart of this.charts) {
      chart.root.hidden = !chart.take(series);
      chart.draw();
    }
    this.distributions(totals, get("degrees"));
    this.happened(store.get("marks") ?? [], clock);
  }

  figures(totals, latency, process, series) {
    const [deliveries, p50, p99, copies, sent, peers, dropped, disk, refused] = this.tiles;
    const last = (name) => series?.[name]?.findLast((value) => value !== null);
    deliveries.set(last("deliveries") === undefined ? count(totals.delivered) : `${count(last("deliveries"))}/s`,
      `${count(totals.delivered)} in all, of ${count(totals.published)} events${totals.pending ? `; ${count(totals.pending)} pending` : ""}`);
    p50.set(seconds(latency.p50 ?? last("p50")), "from publication to delivery");
    p99.set(seconds(latency.p99 ?? last("p99")), "the slowest hundredth takes longer");
    copies.set(count(totals.copies_per_delivery), `${count(totals.duplicates)} duplicates`);
    const { sent: all, received, ...kinds } = totals.bytes ?? {};
    sent.set(bytes(all ?? total(kinds)), listed(received ? { ...kinds, received } : kinds, bytes));
    peers.set(count(total(totals.peers)), listed(totals.peers));
    disk.set(process.log_bytes === undefined ? "–" : bytes(process.log_bytes),
      process.fsync_p99 === undefined || process.fsync_p99 === null ? "no log here" : `fsync 99 % within ${seconds(process.fsync_p99)}`);
    disk.root.hidden = process.log_bytes === undefined || process.log_bytes === null;
    refused.root.hidden = !disk.root.hidden;
    refused.set(count(total(totals.refused) + (totals.rejected ?? 0)), listed({ ...totals.rejections, ...totals.refused }) || "bad input of peers");
    dropped.set(count(total(totals.dropped)), listed(totals.dropped) || "deliveries that were owed");
  }

  distributions(totals, degrees) {
    const show = (box, title, present, made) => {
      box.hidden = !present;
      if (present) fill(box, el("h2", {}, title), made());
    };
    const none = (tableOf) => total(tableOf) === 0;
    show(this.causes, "Copies by cause", !none(totals.copies), () => bars(Object.entries(totals.copies), count, 8, 5));
    const reasons = [totals.dropped, totals.rejections, totals.refused].flatMap((each) => Object.entries(each ?? {}));
    show(this.drops, "Dropped, rejected and refused, by reason", reasons.some(([, value]) => value), () => bars(reasons, count, 8, 4));
    const mesh = degrees.mesh?.length;
    show(this.degrees, mesh ? "Mesh neighbours of a peer" : "Connections of a peer", mesh || degrees.connected?.length,
      () => columns(mesh ? degrees.mesh : degrees.connected));
    show(this.scores, "Scores of peers, up to", degrees.score?.length, () => columns(degrees.score));
  }

  happened(marks, clock) {
    this.marks.hidden = !marks.length;
    if (marks.length === this.shown) return;
    this.shown = marks.length;
    fill(this.marks, el("h2", {}, "What happened"), el("dl", { className: "facts" },
      marks.slice(-7).reverse().map((mark) => [el("dt", { className: "num" }, moment(mark.t, clock)), el("dd", {}, mark.peer ? [peerName(mark.peer), " "] : null, mark.text ?? mark.kind)])),
      marks.length > 7 ? el("p", { className: "soft small" }, `and ${marks.length - 7} before`) : null);
  }
}

export const overview = { title: "Overview", create: (root, app) => new Overview(root, app) };
