// A canvas with peers and links: pan, zoom, pick by mouse or keys, and the way of one event drawn on
// top of it. It draws when something changed and is still otherwise.

import { colour, onTheme, sharpen } from "./charts.js";
import { el, hue } from "./dom.js";

// How each kind of link is drawn: colour, width, dash. Unknown kinds are drawn as connected.
const KINDS = {
  mesh: ["c1", 1.3], neighbour: ["c1", 1.3], tree: ["c3", 1.8], ring: ["c3", 2],
  fanout: ["c5", 1.2, [6, 3]], shortcut: ["c5", 1.2, [5, 3]], choked: ["c2", 1.4, [6, 3]],
  relayed: ["c4", 1.5, [2, 3]], member: ["c6", 0.7, [2, 4]], connected: ["c6", 0.7],
};
const kindOf = (name) => KINDS[name] ?? KINDS.connected;
const still = matchMedia("(prefers-reduced-motion: reduce)");
const CHANGED = 0.05;
const TICKS = 300;
const SLICE = 10;

// As high as the window leaves room for, but no tower on a phone.
export const graphHeight = (rest) => Math.max(320, Math.min(760, innerHeight - rest, innerWidth * 1.05));

export class Graph {
  constructor({ label, height, pick }) {
    this.pick = pick;
    this.nodes = [];
    this.edges = [];
    this.byId = new Map();
    this.scale = 1;
    this.shift = [0, 0];
    this.free = false;
    this.journey = null;
    this.paint = "traffic";
    this.canvas = el("canvas", { tabIndex: 0, role: "img", "aria-label": label, style: { height: `${height}px` } });
    this.context = this.canvas.getContext("2d");
    this.watch = new ResizeObserver(() => { this.fit(); this.draw(); });
    this.watch.observe(this.canvas);
    this.unwatch = onTheme(() => this.draw());
    this.listen();
  }

  destroy() {
    this.stop?.();
    this.watch.disconnect();
    this.unwatch();
    cancelAnimationFrame(this.frame);
  }

  // rows: peers; links: [{ a, b, kind }] of ids; arrange: { how, labels, pairs }.
  set(rows, links, arrange = { how: "force" }) {
    const most = Math.max(1, ...rows.map((row) => (row.delivered ?? 0) + (row.duplicates ?? 0)));
    const small = rows.length > 150 ? 0.6 : rows.length > 50 ? 0.8 : 1;
    const before = this.byId;
    this.byId = new Map(rows.map((row) => {
      const node = before.get(row.id) ?? { id: row.id };
      node.row = row;
      node.r = (row.me ? 9 : 5 + 6 * Math.sqrt(((row.delivered ?? 0) + (row.duplicates ?? 0)) / most)) * small;
      return [row.id, node];
    }));
    this.nodes = [...this.byId.values()];
    this.edges = links.map(({ a, b, kind }) => ({ a: this.byId.get(a), b: this.byId.get(b), kind }))
      .filter(({ a, b }) => a && b && a !== b);
    const shape = `${arrange.how} ${JSON.stringify(arrange.labels ?? arrange.pairs ?? "")}`;
    const fresh = shape !== this.shape;
    if (fresh || this.moved(before)) this.arrange(arrange, fresh);
    this.shape = shape;
    this.draw();
  }

  // A mesh swaps a link now and then: that alone does not move everybody.
  moved(before) {
    const key = ({ a, b }) => (a.id < b.id ? `${a.id} ${b.id}` : `${b.id} ${a.id}`);
    const now = new Set(this.edges.map(key));
    const laid = this.laid ?? new Set();
    let changes = 0;
    for (const each of now) changes += !laid.has(each);
    for (const each of laid) changes += !now.has(each);
    const nodes = this.nodes.length !== before.size || this.nodes.some((node) => !before.has(node.id));
    if (!nodes && changes <= CHANGED * Math.max(now.size, laid.size)) return false;
    this.laid = now;
    return true;
  }

  arrange({ how, labels, pairs }, fresh) {
    this.stop?.();
    this.canvas.ariaBusy = "false";
    if (fresh) {
      this.moved(new Map());
      this.free = false;
      for (const node of this.nodes) node.x = node.y = node.vx = node.vy = undefined;
    }
    if (how === "ring") circle(this.nodes, new Map(labels));
    else if (how === "tree") layers(this.nodes, pairs, (this.canvas.clientHeight - 90) / (this.canvas.clientWidth - 70));
    else {
      const seen = new Map();
      for (const edge of this.edges) seen.set([edge.a.id, edge.b.id].sort().join(" "), edge);
      const show = () => { this.fit(); this.draw(); };
      this.canvas.ariaBusy = "true";
      this.stop = settle(this.nodes, [...seen.values()], {
        fresh, after: still.matches ? () => {} : show, done: () => { this.canvas.ariaBusy = "false"; show(); },
      });
    }
    this.fit();
  }

  // Everything in sight, unless the reader has moved it.
  fit() {
    const { clientWidth: width, clientHeight: height } = this.canvas;
    if (!width || !height) return;
    const placed = this.nodes.filter((node) => Number.isFinite(node.x));
    if (this.free || !placed.length) return;
    const xs = placed.map((node) => node.x);
    const ys = placed.map((node) => node.y);
    const [left, right, top, bottom] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    this.scale = Math.min(2.2, (width - 70) / (right - left + 1), (height - 90) / (bottom - top + 1));
    this.shift = [width / 2 - ((left + right) / 2) * this.scale, height / 2 - ((top + bottom) / 2) * this.scale];
  }

  at(x, y) {
    let found = null;
    let best = 14;
    for (const node of this.nodes) {
      const far = Math.hypot(node.x * this.scale + this.shift[0] - x, node.y * this.scale + this.shift[1] - y);
      if (far < best) [found, best] = [node, far];
    }
    return found;
  }

  zoom(by, x, y) {
    const next = Math.min(6, Math.max(0.05, this.scale * by));
    this.shift = [x - ((x - this.shift[0]) * next) / this.scale, y - ((y - this.shift[1]) * next) / this.scale];
    this.scale = next;
    this.free = true;
    this.draw();
  }

  listen() {
    let from = null;
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      from = { x: event.offsetX, y: event.offsetY, shift: this.shift, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (from) {
        const [dx, dy] = [event.offsetX - from.x, event.offsetY - from.y];
        if (!from.moved && Math.hypot(dx, dy) < 4) return;
        from.moved = this.free = true;
        this.shift = [from.shift[0] + dx, from.shift[1] + dy];
        this.draw();
        return;
      }
      const over = this.at(event.offsetX, event.offsetY);
      if (over !== this.over) {
        this.over = over;
        this.draw();
      }
    });
    canvas.addEventListener("pointerup", (event) => {
      if (from && !from.moved) this.choose(this.at(event.offsetX, event.offsetY)?.id ?? null);
      from = null;
    });
    canvas.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey && !this.free && document.activeElement !== canvas) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 500), event.offsetX, event.offsetY);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.pressed(event));
  }

  pressed(event) {
    const middle = [this.canvas.clientWidth / 2, this.canvas.clientHeight / 2];
    const ways = { ArrowRight: [1, 0], ArrowLeft: [-1, 0], ArrowDown: [0, 1], ArrowUp: [0, -1] };
    if (event.key === "+" || event.key === "=") this.zoom(1.25, ...middle);
    else if (event.key === "-") this.zoom(0.8, ...middle);
    else if (event.key === "0") { this.free = false; this.fit(); this.draw(); }
    else if (event.key === "Escape") this.choose(null);
    else if (ways[event.key]) this.step(...ways[event.key]);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  // The nearest peer in the direction of the arrow.
  step(dx, dy) {
    const from = this.byId.get(this.chosen) ?? this.nodes.find((node) => node.row.me) ?? this.nodes[0];
    let found = null;
    let best = Infinity;
    for (const node of this.nodes) {
      const along = (node.x - from.x) * dx + (node.y - from.y) * dy;
      const off = Math.abs((node.x - from.x) * dy) + Math.abs((node.y - from.y) * dx);
      if (along > 0 && along + 2 * off < best) [found, best] = [node, along + 2 * off];
    }
    if (found || !this.chosen) this.choose((found ?? from)?.id ?? null);
  }

  choose(id) {
    this.chosen = id;
    this.pick?.(id);
    this.draw();
  }

  draw() {
    if (this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      this.drawNow();
    });
  }

  drawNow() {
    const { context: c, scale } = this;
    if (!sharpen(this.canvas, c)) return;
    this.tones = Object.fromEntries(
      ["c1", "c2", "c3", "c4", "c5", "c6", "ink", "soft", "card", "bad", "good", "line"].map((name) => [name, colour(name)]));
    c.translate(...this.shift);
    c.lineCap = "round";
    this.drawEdges(c, scale);
    if (this.journey) this.drawJourney(c, scale);
    this.drawNodes(c, scale);
    c.globalAlpha = 1;
  }

  drawEdges(c, scale) {
    const lit = this.over ?? this.byId.get(this.chosen);
    const crowd = Math.max(0.16, Math.min(0.75, 220 / (this.edges.length + 1)));
    for (const { a, b, kind } of this.edges) {
      const [name, width, dash] = kindOf(kind);
      const near = lit && (a === lit || b === lit);
      c.globalAlpha = this.journey ? 0.12 : near ? 1 : lit ? crowd * 0.5 : crowd;
      c.strokeStyle = this.tones[name];
      c.lineWidth = near ? width + 0.8 : width;
      c.setLineDash(dash ?? []);
      c.beginPath();
      c.moveTo(a.x * scale, a.y * scale);
      c.lineTo(b.x * scale, b.y * scale);
      c.stroke();
    }
    c.setLineDash([]);
  }

  drawJourney(c, scale) {
    const { steps, now, moving } = this.journey;
    for (const { from, to, t0, t, kind } of steps) {
      const [a, b] = [this.byId.get(from), this.byId.get(to)];
      if (!a || !b || now < t0) continue;
      const part = t > t0 ? Math.min(1, (now - t0) / (t - t0)) : 1;
      const first = kind === "deliver";
      if (part < 1 && !moving) continue;
      const [x, y] = [a.x + (b.x - a.x) * part, a.y + (b.y - a.y) * part];
      c.globalAlpha = first ? 0.95 : 0.4;
      c.strokeStyle = this.tones[first ? "c2" : kind === "reject" ? "bad" : "c6"];
      c.lineWidth = first ? 2.2 : 1;
      c.setLineDash(first ? [] : [2, 4]);
      c.beginPath();
      c.moveTo(a.x * scale, a.y * scale);
      c.lineTo(x * scale, y * scale);
      c.stroke();
      if (part < 1 && first) {
        c.fillStyle = this.tones.c2;
        c.beginPath();
        c.arc(x * scale, y * scale, 3, 0, 7);
        c.fill();
      }
    }
    c.setLineDash([]);
  }

  fillOf(node) {
    const { row } = node;
    const { tones } = this;
    if (this.journey) {
      const at = this.journey.reached.get(node.id);
      return at !== undefined && at <= this.journey.now ? tones.c2 : tones.line;
    }
    if (this.paint === "peer") return hue(node.id);
    if (this.paint === "score" && typeof row.score === "number") {
      return row.score < 0 ? tones.c4 : row.score > 0 ? tones.c3 : tones.c6;
    }
    if (this.paint === "lag" && typeof row.lag === "number") {
      return row.lag > 100 ? tones.c4 : row.lag > 0 ? tones.c2 : tones.c3;
    }
    return tones.c1;
  }

  drawNodes(c, scale) {
    const named = this.nodes.length <= Math.min(40, this.canvas.clientWidth / 24);
    const lit = this.over ?? this.byId.get(this.chosen);
    c.font = "11px system-ui, sans-serif";
    c.textAlign = "center";
    for (const node of this.nodes) {
      if (!Number.isFinite(node.x)) continue;
      const [x, y] = [node.x * scale, node.y * scale];
      const { row } = node;
      const r = node.r * Math.min(1.25, Math.max(0.35, scale));
      c.globalAlpha = 1;
      c.beginPath();
      c.arc(x, y, r, 0, 7);
      c.fillStyle = row.up === false ? this.tones.card : this.fillOf(node);
      c.fill();
      c.lineWidth = row.me || node.id === this.chosen ? 2.5 : 1.2;
      c.strokeStyle = row.up === false ? this.tones.bad : node === lit || row.me ? this.tones.ink : this.tones.card;
      c.setLineDash(row.up === false ? [3, 2] : []);
      c.stroke();
      c.setLineDash([]);
      if (named || node === lit || row.me) {
        c.fillStyle = this.tones[node === lit ? "ink" : "soft"];
        c.fillText(row.name ?? node.id.slice(-6), x, y + r + 12);
      }
    }
  }
}

// A short line as the kind is drawn, for the legend.
export function sample(kind) {
  const canvas = el("canvas", { width: 44, height: 12, style: { width: "22px", height: "6px" } });
  const [name, width, dash] = kindOf(kind);
  const c = canvas.getContext("2d");
  c.scale(2, 2);
  c.strokeStyle = colour(name);
  c.lineWidth = width + 0.6;
  c.setLineDash(dash ?? []);
  c.beginPath();
  c.moveTo(0, 3);
  c.lineTo(22, 3);
  c.stroke();
  return canvas;
}

// --- Where peers stand. Force: 300 ticks on a change, then still; a newcomer starts amid its neighbours.
// Rings and trees have fixed places and no physics. ---

// Nodes have x and y already or get them; done in slices, so that the page stays awake.
function settle(nodes, edges, { fresh, after, done }) {
  const d3 = globalThis.d3;
  const beside = new Map(nodes.map((node) => [node, []]));
  for (const { a, b } of edges) {
    beside.get(a).push(b);
    beside.get(b).push(a);
  }
  const spread = 18 * Math.sqrt(nodes.length + 1);
  nodes.forEach((node, at) => {
    if (Number.isFinite(node.x)) return;
    const placed = beside.get(node).filter((other) => Number.isFinite(other.x));
    const angle = at * 2.399963;
    const far = placed.length ? 8 : spread * Math.sqrt((at + 0.5) / nodes.length);
    node.x = Math.cos(angle) * far + mean(placed, "x");
    node.y = Math.sin(angle) * far + mean(placed, "y");
  });
  const links = edges.map(({ a, b }) => ({ source: a, target: b }));
  const size = nodes.length;
  const simulation = d3.forceSimulation(nodes)
    .force("link", d3.forceLink(links).distance(size > 60 ? 46 : 62).strength((link) =>
      0.7 / Math.max(1, Math.min(beside.get(link.source).length, beside.get(link.target).length))))
    .force("charge", d3.forceManyBody().strength(size > 200 ? -90 : -170).distanceMax(500))
    .force("x", d3.forceX(0).strength((node) => (beside.get(node).length ? 0.05 : 0.16)))
    .force("y", d3.forceY(0).strength((node) => (beside.get(node).length ? 0.07 : 0.2)))
    .force("apart", d3.forceCollide((node) => node.r + 3))
    .alpha(fresh ? 1 : 0.25)
    .alphaDecay(1 - 0.001 ** (1 / TICKS))
    .stop();
  let left = TICKS;
  let frame = 0;
  const slice = () => {
    const until = performance.now() + SLICE;
    while (left > 0 && performance.now() < until) {
      simulation.tick();
      left -= 1;
    }
    after();
    if (left > 0) frame = requestAnimationFrame(slice);
    else done?.();
  };
  frame = requestAnimationFrame(slice);
  return () => cancelAnimationFrame(frame);
}

const mean = (nodes, axis) =>
  nodes.length ? nodes.reduce((sum, node) => sum + node[axis], 0) / nodes.length : 0;

// The peers along their ring links, as labels of their places; nothing where there is no ring.
export function ringOrder(links) {
  const beside = new Map();
  for (const { a, b, kind } of links) {
    if (kind !== "ring") continue;
    beside.set(a, [...(beside.get(a) ?? []), b]);
    beside.set(b, [...(beside.get(b) ?? []), a]);
  }
  const seen = new Set();
  for (const start of beside.keys()) {
    for (let at = start; at !== undefined; at = beside.get(at).find((other) => !seen.has(other))) seen.add(at);
  }
  return seen.size > 2 ? [...seen].map((id, at) => [id, at]) : [];
}

// Labels are places on a circle, in their order; peers without one stand inside.
function circle(nodes, labels) {
  const order = [...nodes].sort((a, b) => {
    const [x, y] = [labels.get(a.id), labels.get(b.id)];
    if (x === undefined || y === undefined) return (x === undefined) - (y === undefined);
    return typeof x === "number" && typeof y === "number" ? x - y : String(x) < String(y) ? -1 : 1;
  });
  const on = order.filter((node) => labels.size === 0 || labels.has(node.id));
  const radius = Math.max(120, on.length * 5.2);
  on.forEach((node, at) => place(node, radius, at / on.length));
  const off = order.slice(on.length);
  off.forEach((node, at) => place(node, radius / 3, at / off.length));
}

function place(node, radius, turn) {
  node.x = radius * Math.sin(2 * Math.PI * turn);
  node.y = -radius * Math.cos(2 * Math.PI * turn);
}

// Layers by depth; a parent stands in the middle above its children. The layers are as far apart as
// the canvas (its height for a width of one) has room.
function layers(nodes, pairs, shape) {
  const byId = new Map(nodes.map((node) => [node.id, node]));
  const children = new Map();
  const parent = new Map();
  for (const [child, above] of pairs) {
    if (!byId.has(child) || !byId.has(above) || child === above || parent.has(child)) continue;
    parent.set(child, above);
    children.set(above, [...(children.get(above) ?? []), child]);
  }
  const inTree = (id) => parent.has(id) || children.has(id);
  const roots = nodes.map((node) => node.id).filter((id) => inTree(id) && !parent.has(id));
  const seen = new Set();
  let next = 0;
  const step = 26;
  const walk = (id, depth) => {
    if (seen.has(id)) return null;
    seen.add(id);
    const below = (children.get(id) ?? []).map((each) => walk(each, depth + 1)).filter((x) => x !== null);
    const x = below.length ? (below[0] + below.at(-1)) / 2 : (next += 1) * step;
    Object.assign(byId.get(id), { x, y: depth * 78 });
    return x;
  };
  for (const id of roots) {
    walk(id, 0);
    next += 1;
  }
  // Peers outside the tree, and what a circle in it kept from being reached, stand below in rows.
  const others = nodes.filter((node) => !seen.has(node.id));
  const wide = Math.max(12, Math.round(next));
  const deepest = Math.max(0, ...nodes.filter((node) => seen.has(node.id)).map((node) => node.y));
  others.forEach((node, at) => {
    node.x = (1 + (at % wide)) * step;
    node.y = deepest + 90 + Math.floor(at / wide) * 34;
  });
  const high = Math.max(1, ...nodes.map((node) => node.y));
  const stretch = Math.min(3, Math.max(0.7, (wide * step * (shape > 0 ? shape : 1)) / high));
  for (const node of nodes) node.y *= stretch;
}
