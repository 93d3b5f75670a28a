// One topic: does it flow, and what is in it? The tail comes from the log by offset, so what is left
// out is counted; a pause keeps what was shown.

import { LineChart } from "./charts.js";
import { bytes, card, count, el, empty, facts, fill, moment, parts, peerName, percent, refill, Rows, say, seconds, segments, shortName, total, wall } from "./dom.js";
import { ask, post } from "./source.js";
import { choices } from "./view-overlay.js";

const PAGE = 200;
const LONGEST = 160;

const preview = (row) =>
  row.text?.slice(0, LONGEST) ?? (row.size ? `binary, ${bytes(row.size)}` : `event ${shortName(row.id)}, whose payload is not recorded`);
const matches = (row, filter) =>
  !filter || `${row.text ?? ""} ${row.author ?? ""} ${row.key ?? ""} ${row.id ?? ""}`.toLowerCase().includes(filter.toLowerCase());

function hexOf(base64) {
  const raw = atob(base64).slice(0, 2048);
  const lines = [];
  for (let at = 0; at < raw.length; at += 16) {
    const codes = Array.from(raw.slice(at, at + 16), (each) => each.charCodeAt(0));
    const hex = codes.map((code) => code.toString(16).padStart(2, "0")).join(" ").padEnd(48);
    const text = codes.map((code) => (code > 31 && code < 127 ? String.fromCharCode(code) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${hex} ${text}`);
  }
  return lines.join("\n");
}

class Topic {
  constructor(root, app) {
    this.app = app;
    this.paused = null;
    this.page = null;
    this.raw = "text";
    const charts = [
      { title: "Deliveries", show: (value) => `${count(value)}/s`, lines: [{ name: "rate", label: "", colour: 1 }] },
      { title: "Time from publication to delivery", show: seconds,
        lines: [{ name: "p50", label: "half", colour: 1 }, { name: "p99", label: "99 %", colour: 2, peak: true }] },
    ];
    this.charts = charts.map((chart) => new LineChart({ ...chart, app }));
    this.topic = el("select", { "aria-label": "Topic", onchange: () => app.keep({ topic: this.topic.value, from: null, since: null }, true) });
    this.title = el("h1", { className: "grow" });
    this.ledger = card("Ledger");
    this.filter = el("input", { type: "search", className: "grow", placeholder: "Filter: text, author, key", "data-filter": "",
      "aria-label": "Filter", value: app.param("filter"), onchange: () => app.keep({ filter: this.filter.value }) });
    this.pause = el("button", { type: "button", onclick: () => this.toggle() }, "Pause");
    this.news = el("span", { className: "soft small", role: "status" });
    this.where = el("input", { className: "grow", placeholder: "Offset, or a time such as 14:05 or 2026-11-18T14:05", "aria-label": "Seek" });
    this.older = el("button", { type: "button", onclick: () => this.turn(-PAGE) }, "Older");
    this.newer = el("button", { type: "button", onclick: () => this.turn(PAGE) }, "Newer");
    this.problem = el("p", { className: "bad small", role: "alert" });
    this.tail = new Rows({
      label: "Events", height: 420, key: (row) => `${row.offset} ${row.id}`, choose: (row) => this.detail(row),
      none: "No events yet.",
      columns: [
        { head: "offset", cell: (row) => String(row.offset ?? "–"), width: "4.5rem", right: true },
        { head: "received", cell: (row) => this.when(row.received ?? row.created), width: "8.2rem" },
        { head: "author", cell: (row) => peerName(row.author), width: "5.5rem", wide: true },
        { head: "via", cell: (row) => row.via || (row.size ? "gossip" : "–"), width: "4rem", wide: true },
        { head: "size", cell: (row) => bytes(row.size), width: "4rem", right: true, wide: true },
        { head: "payload", cell: (row) => el("span", { className: "mono" }, preview(row)) },
      ],
    });
    this.details = el("section", { className: "card", hidden: true });
    this.publishing = this.publishBox();
    root.append(
      el("div", { className: "bar" }, this.title, el("label", {}, "topic", this.topic)),
      el("div", { className: "trio" }, this.charts.map((chart) => chart.root), this.ledger),
      el("section", { className: "card" },
        el("div", { className: "bar" }, el("h2", {}, "Events"), this.filter, this.pause, this.news),
        this.seeking = el("form", { className: "bar", onsubmit: (event) => { event.preventDefault(); this.seek(this.where.value); } },
          this.where, el("button", {}, "Seek"),
          el("button", { type: "button", onclick: () => this.seek("0") }, "First"),
          el("button", { type: "button", onclick: () => app.keep({ from: null, since: null }) }, "Live"),
          this.older, this.newer),
        this.problem, this.tail.root),
      this.details, this.publishing);
  }

  destroy() {
    for (const chart of this.charts) chart.destroy();
  }

  // Rows of a log have times of the wall, those of a trace its own.
  when(t) {
    return typeof t === "number" && t < 1e9 ? moment(t, this.app.clock(), true) : wall(t);
  }

  publishBox() {
    const data = el("textarea", { rows: 2, placeholder: "Text to publish", "aria-label": "Text to publish", maxLength: 60000 });
    const said = el("span", { className: "small soft", role: "status" });
    return el("form", { className: "card", hidden: true, onsubmit: async (event) => {
      event.preventDefault();
      try {
        const receipt = await post("./publish", { topic: this.name, data: data.value }, this.app.source().token);
        say(said, receipt.offset === undefined ? "Published." : `Published at offset ${receipt.offset}.`);
        data.value = "";
      } catch (error) {
        say(said, error.message);
      }
    } }, el("h2", {}, "Publish"), data, el("div", { className: "bar" }, el("button", { className: "main" }, "Publish"), said));
  }

  update(query) {
    const { store } = this.app;
    const rows = store.rows("topics");
    const asked = query.get("topic");
    if (!asked && rows.length) {
      this.app.keep({ topic: rows[0].name });
      return;
    }
    const row = rows.find((each) => each.name === asked);
    this.name = asked;
    choices(this.topic, [...(row || !asked ? [] : [[asked, asked]]), ...rows.map((each) => [each.name, each.title || each.name])], asked ?? "");
    say(this.title, row?.title || asked || "No topic yet");
    const series = store.topicSeries.get(asked);
    for (const chart of this.charts) {
      chart.root.hidden = !chart.take(series);
      chart.draw();
    }
    this.figures(row);
    this.publishing.hidden = !this.app.source().allow_publish || !asked || this.app.still;
    this.rows(query);
  }

  figures(row) {
    if (!row) return refill(this.ledger, empty("Nothing is known of this topic yet."));
    const dropped = total(row.dropped);
    return refill(this.ledger, parts([["delivered", row.delivered, 3], ["pending", row.pending, 2], ["dropped", dropped, 4]]),
      facts([
        ["published", count(row.published)], ["owed and given", row.pending === undefined ? null : percent(row.delivered, row.delivered + (row.pending ?? 0) + dropped)],
        ["duplicates", count(row.duplicates)], ["rejected", row.rejected ? count(row.rejected) : null],
        ["dropped", Object.entries(row.dropped ?? {}).map(([reason, number]) => `${count(number)} ${reason}`).join(", ")],
        ["subscribers", row.subscribers === undefined ? null : count(row.subscribers)],
        ["mesh", row.mesh === undefined || row.mesh === null ? null : `${count(row.mesh)} neighbours`],
        ["offsets", row.next === undefined || row.next === null ? null : `${row.first} to ${row.next - 1}, ${bytes(row.bytes)}`],
      ]));
  }

  // --- which rows: live, paused, or a page of the log ---
  rows(query) {
    const place = `${this.name} ${query.get("from") ?? ""} ${query.get("since") ?? ""} ${query.get("filter") ?? ""}`;
    const paged = query.has("from") || query.has("since");
    if (document.activeElement !== this.filter) this.filter.value = query.get("filter") ?? "";
    this.older.hidden = this.newer.hidden = !paged;
    this.seeking.hidden = this.app.still || !["node", "homes"].includes(this.app.source().kind);
    this.pause.hidden = paged;
    if (paged) {
      if (place !== this.place) this.load(query, place);
      return;
    }
    if (place !== this.place) {
      this.place = place;
      this.page = this.paused = null;
      this.last = undefined;
      say(this.problem, "");
    }
    this.live(query.get("filter") ?? "");
  }

  live(filter) {
    const tail = this.app.store.get("tail");
    const all = (tail?.rows ?? []).filter((row) => (!row.topic || row.topic === this.name) && matches(row, filter));
    say(this.pause, this.paused ? "Resume" : "Pause");
    const lost = this.app.store.leftOut;
    const left = lost ? `${count(lost)} more were not shown; they are in the log` : "";
    if (this.paused) {
      const since = all.filter((row) => row.offset > this.paused).length;
      say(this.news, [`paused, ${count(since)} new`, left].filter(Boolean).join(" · "));
      return;
    }
    say(this.news, left);
    const last = `${all.at(-1)?.offset} ${all.length}`;
    if (last === this.last) return;
    this.last = last;
    const before = this.shownTo === undefined ? 0 : all.filter((row) => row.offset > this.shownTo).length;
    this.shownTo = all.at(-1)?.offset;
    this.tail.set(all.toReversed(), before);
  }

  toggle() {
    if (this.pause.hidden) return false;
    const rows = this.app.store.get("tail")?.rows ?? [];
    this.paused = this.paused ? null : (rows.at(-1)?.offset ?? -1) || -1;
    this.last = undefined;
    this.live(this.app.param("filter"));
    return true;
  }

  seek(text) {
    const said = text.trim();
    say(this.problem, "");
    if (/^\d+$/.test(said)) return this.app.keep({ from: said, since: null }, true);
    const today = new Date();
    const clock = /^(\d{1,2}):(\d{2})(?::(\d{2}))?$/.exec(said);
    if (clock) today.setHours(Number(clock[1]), Number(clock[2]), Number(clock[3] ?? 0), 0);
    const at = clock ? today : new Date(said);
    if (!said || Number.isNaN(at.getTime())) return say(this.problem, "An offset is a number; a time looks like 14:05 or 2026-11-18T14:05.");
    return this.app.keep({ since: at.getTime() / 1000, from: null }, true);
  }

  turn(by) {
    if (!this.page) return;
    const from = by > 0 ? this.page.next : Math.max(0, (this.page.rows[0]?.offset ?? this.page.first) + by);
    this.app.keep({ from, since: null }, true);
  }

  async load(query, place) {
    this.place = place;
    this.last = undefined;
    say(this.problem, "");
    if (this.app.still) return say(this.problem, "A still holds no log to seek in.");
    const asked = new URLSearchParams({ limit: PAGE });
    for (const name of ["from", "since", "filter"]) if (query.get(name)) asked.set(name, query.get(name));
    try {
      const page = await ask(`./topics/${encodeURIComponent(this.name)}/events?${asked}`);
      if (this.place !== place) return null;
      this.page = page;
      this.newer.disabled = !page.more;
      this.older.disabled = (page.rows[0]?.offset ?? 0) <= (page.first ?? 0);
      say(this.news, page.rows.length ? `offsets ${page.rows[0].offset} to ${page.rows.at(-1).offset}` : "nothing there");
      this.tail.view.scrollTop = 0;
      return this.tail.set(page.rows);
    } catch (error) {
      return this.place === place ? say(this.problem, error.message) : null;
    }
  }

  detail(row) {
    this.details.hidden = false;
    const kinds = [["text", "text"], ["json", "JSON"], ["hex", "bytes"]];
    let shown = row.text ?? "";
    if (!row.size) shown = "The payload is not recorded.";
    else if (this.raw === "hex" || row.text === null || row.text === undefined) {
      shown = row.base64 ? hexOf(row.base64) : hexOf(btoa(String.fromCharCode(...new TextEncoder().encode(shown.slice(0, 2048)))));
    } else if (this.raw === "json") {
      try {
        shown = JSON.stringify(JSON.parse(shown), null, 2);
      } catch {
        shown = `This is no JSON:\n\n${shown}`;
      }
    }
    const headers = Object.entries(row.headers ?? {}).map(([name, value]) => el("div", {}, el("code", {}, `${name}: ${value}`)));
    fill(this.details,
      el("div", { className: "bar" }, el("h2", { className: "grow" }, `Event ${row.offset ?? shortName(row.id)}`),
        segments(kinds, this.raw, (kind) => { this.raw = kind; this.detail(row); }),
        el("a", { href: this.app.address("event", { id: row.id }) }, "its journey"),
        el("button", { type: "button", onclick: () => { this.details.hidden = true; } }, "Close")),
      el("pre", { className: "payload" }, shown),
      row.cut ? el("p", { className: "soft small" }, `${bytes(row.cut)} more are not shown.`) : null,
      facts([["id", el("code", {}, row.id)], ["author", peerName(row.author, row.author)], ["created", this.when(row.created)], ["received", this.when(row.received)],
        ["via", row.via], ["key", row.key], ["type", row.content_type], ["size", bytes(row.size)], ["headers", headers.length ? headers : null]]));
  }
}

export const topic = { title: "Topic", asks: ["topic", "filter"], create: (root, app) => new Topic(root, app) };
