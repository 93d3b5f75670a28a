// Is the theory true here? What is special to the protocol: trees and heads, the ring and whether it
// is legitimate, how far a radius covers.

import { bars, card, count, el, empty, facts, percent, plural, refill, words } from "./dom.js";
import { Graph, graphHeight, ringOrder } from "./graph.js";
import { choices, linksOf } from "./view-overlay.js";

const isTable = (value) => value && typeof value === "object" && !Array.isArray(value)
  && Object.values(value).length && Object.values(value).every((each) => typeof each === "number");

class Protocol {
  constructor(root, app) {
    this.app = app;
    this.title = el("h1", { className: "grow" }, "Protocol");
    this.topic = el("select", { "aria-label": "Topic", onchange: () => app.keep({ topic: this.topic.value }) });
    this.chooser = el("label", {}, "topic", this.topic);
    this.rows = card("State");
    this.shape = el("h2", {});
    this.verdict = el("span", { className: "badge" });
    this.graph = new Graph({ label: "The tree or ring of the topic", height: graphHeight(250),
      pick: (id) => id && (location.hash = app.address("overlay", { peer: id })) });
    this.picture = el("section", { className: "card" }, el("div", { className: "bar" }, this.shape, this.verdict),
      el("div", { className: "graph" }, this.graph.canvas));
    this.coverage = card("Coverage");
    this.heads = card("Heads of the graph of events");
    root.append(el("div", { className: "bar" }, this.title, this.chooser),
      el("div", { className: "side" }, this.picture, el("div", { className: "stack" }, this.rows, this.coverage, this.heads)));
  }

  destroy() {
    this.graph.destroy();
  }

  update(query) {
    const known = this.app.store.get("protocol") ?? {};
    const { trees = {}, ring = {}, coverage } = known;
    const heads = this.app.store.get("heads");
    if (known.name) this.title.textContent = known.name;
    const names = [...new Set([...Object.keys(trees ?? {}), ...Object.keys(ring ?? {})])];
    const topic = names.includes(query.get("topic")) ? query.get("topic") : names[0] ?? "";
    this.chooser.hidden = !names.length;
    choices(this.topic, names.map((name) => [name, name]), topic);
    refill(this.rows, known.rows?.length
      ? facts(known.rows.map(([label, value]) => [String(label), words(value)])) : empty("Nothing is known yet."));
    this.draw(trees?.[topic], ring?.[topic], linksOf(this.app.store, topic));
    this.coverage.hidden = !coverage;
    if (coverage) refill(this.coverage, isTable(coverage) ? bars(Object.entries(coverage), (value) => (value <= 1 ? percent(value, 1) : count(value)), 12, 3) : el("p", {}, words(coverage)));
    this.heads.hidden = !heads || heads.topic !== topic;
    if (!this.heads.hidden) {
      refill(this.heads, el("p", { className: "soft small" }, `Of the last ${plural(heads.among, "event", "events")}, those that none follows; beside each, how many logs say so.`),
        heads.rows.map(([id, logs]) => el("div", { className: "bar" }, el("a", { className: "grow", href: this.app.address("event", { id }) }, el("code", {}, String(id).slice(-16))), count(logs))),
        heads.left_out ? empty(`and ${count(heads.left_out)} more`) : null);
    }
  }

  draw(tree, ring, links) {
    const peers = new Map(this.app.store.rows("peers").map((row) => [row.id, row]));
    const row = (id) => peers.get(id) ?? { id, name: String(id).slice(-6) };
    const labels = ring?.labels?.length > 2 ? ring.labels : ringOrder(links);
    this.verdict.hidden = typeof ring?.legitimate !== "boolean";
    this.verdict.textContent = ring?.legitimate ? "legitimate" : "not legitimate yet";
    this.verdict.className = `badge ${ring?.legitimate ? "good" : "warn"}`;
    this.picture.hidden = !tree?.length && !labels.length && this.verdict.hidden;
    this.graph.canvas.hidden = !tree?.length && !labels.length;
    this.shape.textContent = "Ring";
    if (labels.length) {
      this.shape.textContent = `Ring of ${count(labels.length)} peers`;
      this.graph.set(labels.map(([id]) => row(id)), links.filter(({ kind }) => kind === "ring" || kind === "shortcut"),
        { how: "ring", labels });
    } else if (tree?.length) {
      this.shape.textContent = `Tree of ${count(new Set(tree.flat()).size)} peers`;
      this.graph.set([...new Set(tree.flat())].map(row), tree.map(([a, b]) => ({ a, b, kind: "tree" })), { how: "tree", pairs: tree });
    }
  }
}

export const protocol = { title: "Protocol", asks: ["topic"], create: (root, app) => new Protocol(root, app) };
