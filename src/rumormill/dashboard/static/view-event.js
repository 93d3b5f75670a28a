// The journey of one event: a row for each peer, by when it came, from whom and how.

import { bytes, card, count, el, empty, facts, fill, moment, peerName, plural, Rows, say, seconds } from "./dom.js";
import { eventChoices } from "./view-overlay.js";

// One row for each peer of a journey, in the order of arrival; those that wait come last.
function arrivals(journey) {
  const rows = new Map();
  const of = (peer) => {
    if (!rows.has(peer)) rows.set(peer, { peer, t: null, copies: [], rejected: 0 });
    return rows.get(peer);
  };
  for (const hop of [...(journey.hops ?? [])].sort((a, b) => a.t - b.t)) {
    if (hop.kind === "send") continue;
    const row = of(hop.peer);
    if (hop.kind === "duplicate") row.copies.push(hop.t);
    else if (hop.kind === "reject") row.rejected += 1;
    else if (row.t === null) Object.assign(row, { t: hop.t, from: hop.from, hop: hop.hop, via: hop.kind === "publish" ? "published" : hop.via || "gossip" });
  }
  for (const peer of journey.waiting ?? []) of(peer);
  return [...rows.values()].sort((a, b) => (a.t ?? Infinity) - (b.t ?? Infinity));
}

class Event {
  constructor(root, app) {
    this.app = app;
    this.event = el("select", { className: "grow", "aria-label": "Event", onchange: () => app.keep({ id: this.event.value }, true) });
    this.about = card(null);
    this.problem = el("p", { className: "bad", role: "alert" });
    this.span = 1;
    this.rows = new Rows({
      label: "Peers by arrival", height: Math.max(300, innerHeight - 420), key: (row) => row.peer, none: "Choose an event.",
      choose: (row) => { location.hash = app.address("overlay", { peer: row.peer, event: this.shown }); },
      columns: [
        { head: "peer", cell: (row) => this.peer(row.peer), width: "5rem" },
        { head: "after", cell: (row) => (row.t === null ? el("span", { className: "warn" }, "waits") : seconds(row.t - this.start)), width: "4.2rem", right: true },
        { head: "hop", cell: (row) => String(row.hop ?? "–"), width: "2.4rem", right: true, wide: true },
        { head: "from", cell: (row) => (row.from ? this.peer(row.from) : "–"), width: "5rem", wide: true },
        { head: "via", cell: (row) => row.via ?? "–", width: "5rem", wide: true },
        { head: "copies", cell: (row) => (row.copies.length ? count(row.copies.length) : ""), width: "3rem", right: true },
        { head: "time, as its square root", cell: (row) => this.line(row) },
      ],
    });
    root.append(el("div", { className: "bar" }, el("h1", {}, "Event"), this.event), this.problem, this.about,
      el("section", { className: "card" }, el("h2", {}, "Journey"), this.rows.root));
  }

  peer(id) {
    const row = this.app.store.rows("peers").find((each) => each.id === id);
    return peerName(id, row?.name);
  }

  line(row) {
    const at = (t) => `${100 * Math.sqrt(Math.max(0, t - this.start) / this.span)}%`;
    return el("div", { className: "timeline" },
      row.t === null ? null : el("i", { className: row.via === "sync" ? "sync" : "", style: { left: "0", width: at(row.t) } }),
      row.copies.slice(0, 20).map((t) => el("i", { className: "copy", style: { left: at(t) } })));
  }

  update(query) {
    const id = query.get("id") ?? "";
    const recent = eventChoices(this.event, this.app, id);
    if (!id && recent.length) return this.app.keep({ id: (recent.find((row) => row.complete) ?? recent[0]).id });
    // What is not complete is asked for again, with each batch.
    if (id && (id !== this.shown || !this.complete)) this.load(id);
    else if (!id) fill(this.about, empty("Nothing was published yet."));
    return null;
  }

  async load(id) {
    if (this.loading === id) return;
    this.loading = id;
    try {
      const journey = await this.app.journey(id);
      if (this.app.param("id") !== id) return;
      this.show(journey, id);
      say(this.problem, "");
    } catch (error) {
      if (this.app.param("id") !== id) return;
      say(this.problem, error.message);
      this.complete = true;
      this.shown = id;
    } finally {
      if (this.loading === id) this.loading = null;
    }
  }

  show(journey, id) {
    this.shown = id;
    this.complete = journey.complete !== false;
    const rows = arrivals(journey);
    const there = rows.filter((row) => row.t !== null);
    this.start = journey.t ?? there[0]?.t ?? 0;
    const times = rows.flatMap((row) => [row.t ?? this.start, ...row.copies]);
    this.span = Math.max(...times, this.start) - this.start || 1e-9;
    const copies = rows.reduce((sum, row) => sum + row.copies.length, 0);
    const waiting = rows.length - there.length;
    fill(this.about, el("div", { className: "two" },
      facts([["topic", el("a", { href: this.app.address("topic", { topic: journey.topic }) }, journey.topic ?? "–")],
        ["id", el("code", {}, journey.id ?? id)], ["author", this.peer(journey.author)], ["published", moment(journey.t, this.app.clock(), true)],
        ["size", journey.size === undefined || journey.size === null ? null : bytes(journey.size)]]),
      facts([["reached", `${plural(there.length, "peer", "peers")} in ${seconds(Math.max(...there.map((row) => row.t), this.start) - this.start)}`],
        ["waiting", waiting ? el("span", { className: "warn" }, count(waiting)) : "nobody"],
        ["by sync", count(there.filter((row) => row.via === "sync").length)], ["copies besides", count(copies)],
        ["", el("a", { href: this.app.address("overlay", { topic: journey.topic, event: id }) }, "Play it on the overlay")]])));
    this.rows.set(rows);
  }
}

export const eventView = { title: "Event", asks: ["id"], create: (root, app) => new Event(root, app) };
