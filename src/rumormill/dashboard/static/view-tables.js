// The views that are tables and words alone: history and sync, reach, the lake.

import { bars, bytes, card, count, el, empty, facts, moment, peerName, refill, seconds, table, total, wall, words } from "./dom.js";

const ago = (value, clock) =>
  typeof value === "number" ? (value <= (clock.now ?? Infinity) ? `${seconds(Math.max(0, clock.now - value))} ago` : moment(value, clock)) : String(value ?? "–");

// Do we all have the same? What is kept of each topic, and how reconciliation with partners goes.
class History {
  constructor(root, app) {
    this.app = app;
    this.kept = card("Kept");
    this.outcomes = card("Sessions by outcome");
    this.partners = card("Partners");
    root.append(el("h1", {}, "History and sync"), this.kept,
      el("div", { className: "two" }, this.outcomes, this.partners));
  }

  update() {
    const { store } = this.app;
    const clock = this.app.clock();
    const sync = store.get("sync") ?? {};
    const compared = new Map((sync.topics ?? []).map((row) => [row.name, row]));
    const names = [...new Set([...store.rows("topics").map((row) => row.name), ...compared.keys()])];
    const rows = names.map((name) => ({ ...store.rows("topics").find((row) => row.name === name), ...compared.get(name), name }));
    const peer = (id) => peerName(id, store.rows("peers").find((row) => row.id === id)?.name);
    refill(this.kept, table([
      ["topic", (row) => el("a", { href: this.app.address("topic", { topic: row.name }) }, row.name)],
      ["first", (row) => count(row.first), "r"], ["next", (row) => count(row.next), "r"],
      ["size", (row) => bytes(row.bytes), "r"],
      ["compared", (row) => (typeof row.compared === "number" ? `${seconds(row.compared)} ago` : "–"), "r"],
      ["oldest gap", (row) => (row.lacking === undefined ? "–" : el("span", { className: row.lacking ? "warn" : "good" }, row.lacking ? seconds(row.lacking) : "none")), "r"],
      ["to fetch", (row) => count(row.backlog), "r"],
      ["in words", (row) => row.sentence ?? "", "words"],
    ], rows.slice(0, 200), "No topic is kept here."),
    rows.length > 200 ? empty(`and ${rows.length - 200} more`) : null);
    refill(this.outcomes, bars(Object.entries(sync.sessions ?? {}), count, 10, 3));
    refill(this.partners, table([
      ["peer", (row) => peer(row.peer)], ["last", (row) => ago(row.last, clock)], ["outcome", (row) => row.outcome],
      ["events", (row) => count(row.events), "r"], ["unequal", (row) => count(row.unequal), "r"],
    ], (sync.partners ?? []).slice(0, 100), "No session of sync yet."));
  }
}

export const history = { title: "History", create: (root, app) => new History(root, app) };

const list = (values, none) =>
  values?.length
    ? el("div", { className: "lines" }, values.slice(0, 200).map((each) => el("div", {}, typeof each === "string" ? el("code", {}, each) : words(each))))
    : empty(none);

// Why can they not connect? Addresses, what others say of them, and relays.
class Reach {
  constructor(root, app) {
    this.app = app;
    this.lines = card("In words");
    this.addresses = card("Addresses");
    this.relays = card("Relays");
    this.punches = card("Ways out of a relay that were tried");
    this.kinds = card("Peers by kind");
    root.append(el("h1", {}, "Reach"), this.lines,
      el("div", { className: "two" }, this.addresses, el("div", { className: "stack" }, this.kinds, this.relays, this.punches)));
  }

  update() {
    const reach = this.app.store.get("reach") ?? {};
    const peers = this.app.store.get("totals")?.peers ?? {};
    const live = this.app.store.get("reach");
    for (const box of [this.addresses, this.relays, this.punches]) box.hidden = !live;
    refill(this.lines, reach.lines?.length ? reach.lines.map((line) => el("p", {}, words(line)))
        : empty(live ? "Nobody has told this node yet who reaches it." : "A trace says nothing of addresses and of who reaches them; live nodes do."));
    refill(this.addresses, list(reach.addresses, "None is known."));
    const carried = ([name]) => name.startsWith("bytes");
    const relays = Object.entries(reach.relays ?? {});
    refill(this.relays, relays.length ? facts(relays.map((each) => [each[0], (carried(each) ? bytes : count)(each[1])])) : empty("None is used, and this is none."));
    refill(this.punches, bars(Object.entries(reach.punches ?? {}), count, 8, 5));
    refill(this.kinds, bars(Object.entries(peers), count));
  }
}

export const reach = { title: "Reach", create: (root, app) => new Reach(root, app) };

// Does Spark keep up, and are the tables sound?
class Lake {
  constructor(root, app) {
    this.app = app;
    this.queries = card("Queries");
    this.tables = card("Tables");
    this.rejected = card("Rejected events, by reason");
    this.none = card(null, el("p", { className: "empty" }, "No lake is known here. ", el("code", { style: { "white-space": "nowrap" } }, "--lake FOLDER"),
      " shows its tables, how far its queries are behind, and what was rejected."));
    root.append(el("h1", {}, "Lake"), this.none, this.queries, this.tables, this.rejected);
  }

  update() {
    const lake = this.app.store.get("lake");
    this.none.hidden = Boolean(lake);
    for (const box of [this.queries, this.tables, this.rejected]) box.hidden = !lake;
    if (!lake) return;
    const behind = (row) => Object.entries(row.lag ?? {}).map(([name, number]) => `${name} ${count(number)}`).join(", ") || "0";
    refill(this.queries, table([
      ["query", (row) => row.name], ["batch", (row) => seconds(row.batch_seconds), "r"],
      ["rows/s", (row) => count(row.rows_per_second), "r"],
      ["offsets behind", (row) => el("span", { className: total(row.lag) ? "warn" : "good" }, behind(row)), "words"],
      ["batches", (row) => count(row.batch === null ? 0 : row.batch + 1), "r"],
      ["now", (row) => (row.running ? "in a batch" : `waits since ${wall(row.changed)}`), "words"],
    ], lake.queries ?? [], "No query has a checkpoint here."));
    refill(this.tables, table([
      ["table", (row) => row.name], ["rows", (row) => count(row.rows), "r"], ["size", (row) => bytes(row.bytes), "r"],
      ["version", (row) => String(row.version ?? "–"), "r"], ["changed", (row) => wall(row.changed), "words"],
    ], lake.tables ?? [], "No table yet."));
    refill(this.rejected, bars(Object.entries(lake.rejected ?? {}), count, 10, 4),
      lake.not_checked ? empty(`${count(lake.not_checked)} rows were not looked at.`) : null);
  }
}

export const lake = { title: "Lake", create: (root, app) => new Lake(root, app) };
