// Who is connected to whom, what the protocol makes of it, and how one event finds its way.

import { onTheme } from "./charts.js";
import { count, el, facts, fill, moment, option, peerName, plural, Rows, say, seconds, segments, shortName } from "./dom.js";
import { Graph, graphHeight, ringOrder, sample } from "./graph.js";

const still = matchMedia("(prefers-reduced-motion: reduce)");
const SLOWEST = 1000;
const PLAIN = ["connected", "member"];

// The steps of a journey as the canvas draws them, and when each peer was reached.
function stepsOf(journey) {
  const reached = new Map();
  const hops = [...(journey.hops ?? [])].sort((a, b) => a.t - b.t);
  for (const hop of hops) {
    if ((hop.kind === "publish" || hop.kind === "deliver") && !reached.has(hop.peer)) reached.set(hop.peer, hop.t);
  }
  if (journey.author && !reached.has(journey.author)) reached.set(journey.author, journey.t);
  const steps = hops.filter((hop) => hop.from && hop.kind !== "send").map((hop) => ({
    from: hop.from, to: hop.peer, kind: hop.kind, t: hop.t,
    t0: Math.min(hop.t, Math.max(journey.t ?? -Infinity, reached.get(hop.from) ?? hop.t)),
  }));
  return { steps, reached, start: journey.t ?? hops[0]?.t ?? 0, end: hops.at(-1)?.t ?? journey.t ?? 0 };
}

class Overlay {
  constructor(root, app) {
    this.app = app;
    this.topic = el("select", { "aria-label": "Topic", onchange: () => app.keep({ topic: this.topic.value, event: null }) });
    this.paint = el("select", { "aria-label": "Colour", onchange: () => app.keep({ colour: this.paint.value }) },
      option("", "plain"), option("score", "score"), option("lag", "lag"), option("peer", "each its own"));
    this.how = el("span");
    this.legend = el("div", { className: "legend", role: "group", "aria-label": "Kinds of links" });
    this.caption = el("div", { className: "caption soft" });
    this.graph = new Graph({ label: "The overlay: peers and their links", height: graphHeight(210), pick: (id) => app.keep({ peer: id }) });
    this.event = el("select", { className: "grow", "aria-label": "Event", onchange: () => app.keep({ event: this.event.value }) });
    this.run = el("button", { type: "button", className: "main", onclick: () => this.toggle() }, "Play");
    this.at = el("input", { type: "range", min: 0, max: 1000, value: 0, className: "grow", "aria-label": "Time since publication",
      oninput: () => { this.playing = false; say(this.run, "Play"); this.seek(Number(this.at.value) / 1000); } });
    this.slow = el("input", { type: "range", min: 1, max: 3, step: 0.05, value: 2, "aria-label": "How much slower than it was",
      oninput: () => { this.from = null; this.slower(); } });
    this.factor = el("span", { className: "num" });
    this.progress = el("p", { className: "soft small" });
    this.details = el("section", { className: "card" });
    this.filter = el("input", { type: "search", placeholder: "Find a peer", "data-filter": "", "aria-label": "Find a peer",
      oninput: () => this.list() });
    this.peers = new Rows({
      label: "Peers", height: 330, key: (row) => row.id, choose: (row) => app.keep({ peer: row.id }),
      columns: [
        { head: "peer", cell: (row) => peerName(row.id, row.name), width: "minmax(4.5rem, 1fr)" },
        { head: "links", cell: (row) => String(this.degree.get(row.id) ?? 0), width: "3rem", right: true },
        { head: "round trip", cell: (row) => seconds(row.rtt), width: "4.2rem", right: true, key: "rtt" },
        { head: "score", cell: (row) => count(row.score), width: "2.8rem", right: true, key: "score" },
      ],
    });
    this.degree = new Map();
    this.player = el("section", { className: "card" }, el("h2", {}, "Play one event"),
      el("div", { className: "bar" }, this.event, this.run),
      el("div", { className: "bar" }, this.at),
      el("label", {}, "slowed", this.slow, this.factor), this.progress);
    root.append(
      el("div", { className: "bar" }, el("h1", { className: "grow" }, "Overlay"), el("label", {}, "topic", this.topic),
        el("label", {}, "colour", this.paint), this.how),
      el("div", { className: "side" },
        el("div", { className: "stack" }, el("div", { className: "card graph" }, this.graph.canvas, this.caption), this.legend),
        el("div", { className: "stack" }, this.player, this.details,
          el("section", { className: "card" }, el("div", { className: "bar" }, this.filter), this.peers.root))),
    );
    this.slower();
    this.unwatch = onTheme(() => { this.kindsShown = null; app.changed(); });
  }

  destroy() {
    this.unwatch();
    this.playing = false;
    cancelAnimationFrame(this.frame);
    this.graph.destroy();
  }

  slower() {
    const value = 10 ** Number(this.slow.value);
    this.factorValue = Math.min(SLOWEST, value);
    say(this.factor, `${Math.round(this.factorValue)} ×`);
  }

  update(query) {
    const { store } = this.app;
    const topics = store.rows("topics").map((row) => row.name);
    const topic = query.get("topic") ?? "";
    choices(this.topic, [["", "all"], ...topics.map((name) => [name, name])], topic);
    this.paint.value = query.get("colour") ?? "";
    this.graph.paint = query.get("colour") || "traffic";
    this.graph.chosen = query.get("peer");
    const rows = store.rows("peers");
    const links = linksOf(store, topic);
    // Plain connections hide what the protocol makes of them, so they are shown when asked for.
    const plain = links.some(({ kind }) => !PLAIN.includes(kind)) ? PLAIN : [];
    const hidden = new Set(query.get("hide")?.split(",") ?? plain);
    this.kinds(links, hidden);
    const shown = links.filter(({ kind }) => !hidden.has(kind));
    const beside = new Map(rows.map((row) => [row.id, new Set()]));
    for (const { a, b } of shown) {
      beside.get(a)?.add(b);
      beside.get(b)?.add(a);
    }
    this.degree = new Map([...beside].map(([id, others]) => [id, others.size]));
    this.graph.set(rows, shown, this.arrangement(query, topic, topics, shown));
    const left = store.get("peers")?.left_out;
    const lost = store.get("links")?.left_out;
    say(this.caption, [plural(rows.length, "peer", "peers"), plural(shown.length, "link", "links"),
      left ? `${count(left)} peers not shown` : "", lost ? `${count(lost)} links not shown` : ""].filter(Boolean).join(" · "));
    this.list();
    this.detail(query.get("peer"), rows);
    this.events(query, topic);
  }

  // Fixed places where the protocol has a ring or a tree for the topic; else forces.
  arrangement(query, topic, topics, links) {
    const { ring = {}, trees = {} } = this.app.store.get("protocol") ?? {};
    const of = topic || topics.find((name) => ring?.[name] || trees?.[name]) || "";
    const ways = [["force", "free"]];
    const labels = ring?.[of]?.labels?.length > 2 ? ring[of].labels : ringOrder(links);
    if (labels.length) ways.push(["ring", "ring"]);
    if (trees?.[of]?.length) ways.push(["tree", "tree"]);
    const asked = query.get("layout");
    const how = ways.some(([name]) => name === asked) ? asked : ways.at(-1)[0];
    const state = `${ways.length} ${how}`;
    if (state !== this.ways) {
      this.ways = state;
      fill(this.how, ways.length > 1 ? segments(ways, how, (name) => this.app.keep({ layout: name })) : null);
    }
    return { how, labels: how === "ring" ? labels : undefined, pairs: how === "tree" ? trees[of] : undefined };
  }

  kinds(links, hidden) {
    const counts = new Map();
    for (const { kind } of links) counts.set(kind, (counts.get(kind) ?? 0) + 1);
    const state = JSON.stringify([[...counts], [...hidden]]);
    if (state === this.kindsShown) return;
    this.kindsShown = state;
    fill(this.legend, [...counts].map(([kind, number]) => el("button", {
      type: "button", "aria-pressed": String(!hidden.has(kind)), title: "Show or hide",
      onclick: () => {
        const next = new Set(hidden);
        if (!next.delete(kind)) next.add(kind);
        this.app.keep({ hide: [...next].join(",") || "nothing" });
      },
    }, sample(kind), `${kind} ${count(number)}`)));
  }

  list() {
    const wanted = this.filter.value.toLowerCase();
    const rows = this.app.store.rows("peers").filter((row) =>
      !wanted || `${row.id} ${row.name ?? ""} ${row.kind ?? ""}`.toLowerCase().includes(wanted));
    this.peers.chosen = this.app.param("peer") || null;
    this.peers.set(rows);
  }

  detail(id, rows) {
    const row = rows.find((each) => each.id === id);
    this.details.hidden = !row;
    if (!row) return;
    const list = (row.errors ?? []).slice(-5);
    fill(this.details,
      el("div", { className: "bar" }, el("h2", { className: "grow" }, peerName(row.id, row.name)),
        el("button", { type: "button", onclick: () => this.app.keep({ peer: null }) }, "Close")),
      facts([
        ["id", el("code", {}, row.id)], ["state", row.up === false ? el("span", { className: "bad" }, "down") : "up"],
        ["connection", [row.kind, row.direction].filter(Boolean).join(", ")], ["address", row.address],
        ["neighbours", count(this.degree.get(id) ?? 0)],
        ["round trip", row.rtt === undefined ? null : seconds(row.rtt)],
        ["score", typeof row.score === "number" ? count(row.score) : null],
        ["queue", row.queue === undefined ? null : count(row.queue)],
        ["delivered", row.delivered === undefined ? null : count(row.delivered)],
        ["duplicates", row.duplicates === undefined ? null : count(row.duplicates)],
        ["lag", row.lag === undefined ? null : count(row.lag)],
        ["last errors", list.length ? list.map((text) => el("div", {}, String(text))) : null],
      ]));
  }

  events(query, topic) {
    const chosen = query.get("event") ?? "";
    const there = eventChoices(this.event, this.app, chosen, topic);
    if (chosen !== (this.event.loaded ?? "")) this.load(chosen);
    this.run.disabled = !chosen && !there.length;
  }

  async load(id) {
    this.event.loaded = id;
    this.playing = false;
    this.graph.journey = null;
    say(this.progress, "");
    say(this.run, "Play");
    this.graph.draw();
    if (!id) return;
    try {
      const journey = await this.app.journey(id);
      if (this.event.loaded !== id) return;
      const found = stepsOf(journey);
      this.graph.journey = { ...found, now: found.start, moving: !still.matches };
      this.seek(0);
      this.toggle();
    } catch (error) {
      if (this.event.loaded === id) say(this.progress, error.message);
    }
  }

  toggle() {
    if (!this.graph.journey) {
      const last = this.event.options[1]?.value;
      if (last) this.app.keep({ event: last });
      return Boolean(last);
    }
    this.playing = !this.playing;
    const { start, end, now } = this.graph.journey;
    if (this.playing && now >= end) this.seek(0, start);
    say(this.run, this.playing ? "Pause" : "Play");
    this.from = null;
    if (this.playing) this.frame = requestAnimationFrame((time) => this.tick(time));
    return true;
  }

  tick(time) {
    const { journey } = this.graph;
    if (!this.playing || !journey) return;
    this.from ??= { time, now: journey.now };
    const now = this.from.now + (time - this.from.time) / 1000 / this.factorValue;
    const span = journey.end - journey.start || 1e-9;
    this.seek((now - journey.start) / span);
    if (now >= journey.end) {
      this.playing = false;
      say(this.run, "Play again");
      return;
    }
    this.frame = requestAnimationFrame((next) => this.tick(next));
  }

  seek(part) {
    const { journey } = this.graph;
    if (!journey) return;
    journey.now = journey.start + Math.min(1, part) * (journey.end - journey.start);
    if (part >= 1) journey.now = journey.end;
    this.at.value = Math.round(1000 * Math.min(1, part));
    let there = 0;
    for (const t of journey.reached.values()) there += t <= journey.now;
    say(this.progress, `${count(there)} of ${count(journey.reached.size)} peers have it after ${seconds(journey.now - journey.start)}`);
    this.graph.draw();
  }
}

// The links of a topic, or of all, each once: who is whose parent or child is one branch of a tree.
export function linksOf(store, topic) {
  const rows = store.rows("peers");
  const found = new Map();
  for (const [a, b, kind, of] of store.rows("links")) {
    if (!rows[a] || !rows[b] || (topic && of && of !== topic)) continue;
    const shown = kind === "parent" || kind === "child" ? "tree" : kind;
    found.set(`${Math.min(a, b)} ${Math.max(a, b)} ${shown} ${of}`, { a: rows[a].id, b: rows[b].id, kind: shown });
  }
  return [...found.values()];
}

// Let the reader choose among the last events, the newest first.
export function eventChoices(select, app, chosen, topic = "") {
  const rows = app.store.rows("recent").filter((row) => !topic || row.topic === topic).sort((a, b) => b.t - a.t);
  const texts = rows.map((row) => [row.id, `${moment(row.t, app.clock())} · ${row.topic} · ${
    plural(row.deliveries, "delivery", "deliveries")}${row.complete === false ? " …" : ""}`]);
  if (chosen && !rows.some((row) => row.id === chosen)) texts.unshift([chosen, `event ${shortName(chosen)}`]);
  choices(select, [["", texts.length ? "choose an event" : "no events yet"], ...texts], chosen);
  return rows;
}

export function choices(select, pairs, chosen) {
  const state = JSON.stringify(pairs);
  if (select.state !== state && document.activeElement !== select) {
    select.state = state;
    fill(select, pairs.map(([value, text]) => option(value, text)));
  }
  if (select.value !== chosen && pairs.some(([value]) => value === chosen)) select.value = chosen;
}

export const overlay = { title: "Overlay", asks: ["topic", "peer"], create: (root, app) => new Overlay(root, app) };
