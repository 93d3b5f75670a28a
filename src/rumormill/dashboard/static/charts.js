// Lines over time on a canvas: at most a dozen on a view, a key with the present values (or those
// under the pointer), and the marks of faults as thin lines. Drawn when something changed.

import { el, moment, say } from "./dom.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
const BELOW = 20;
const RIGHT = 6;
const TOP = 6;
const TIMES = [1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400];

export const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

export function onTheme(act) {
  const listen = () => act();
  dark.addEventListener("change", listen);
  return () => dark.removeEventListener("change", listen);
}

// Give a canvas as many dots as the screen has for it; true if there is anything to draw on.
export function sharpen(canvas, context) {
  const ratio = devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight].map((size) => Math.round(size * ratio));
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, { width, height });
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, canvas.clientWidth, canvas.clientHeight);
  return width > 0 && height > 0;
}

// The step of about that many round ticks.
function roundStep(span, ticks) {
  const rough = span / Math.max(1, ticks);
  const power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find((each) => each * power >= rough) ?? 10);
}

const known = (value) => value !== null && value !== undefined;

// lines: [{ name, label, colour: 1…6, show, right, dash }]; `right` has a scale of its own, unseen.
export class LineChart {
  constructor({ title, lines, show, app, height = 132, linear = false, quiet = false, unmarked = false }) {
    Object.assign(this, { title, lines, show, app, linear, quiet, unmarked });
    this.values = lines.map(() => el("b", {}, "–"));
    this.key = el("div", { className: "key" }, lines.map((line, at) =>
      el("span", {}, lines.length > 1 ? el("i", { className: `swatch s${line.colour}` }) : null,
        line.label ? `${line.label} ` : "", this.values[at])));
    this.canvas = el("canvas", { style: { "min-height": `${height}px` },
      onpointermove: (event) => this.point(event.offsetX), onpointerleave: () => this.point(null) });
    this.context = this.canvas.getContext("2d");
    this.root = el("section", { className: "card chart", role: "img", "aria-label": title },
      el("h2", {}, title), this.key, this.canvas);
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.canvas);
    this.unwatch = onTheme(() => this.draw());
  }

  destroy() {
    this.watch.disconnect();
    this.unwatch();
  }

  // data: [times, values of the first line, …], null where nothing is known.
  set(data) {
    this.all = data;
    this.draw();
  }

  // As many points as can be told apart: means, or the highest of a line that is a peak.
  thin() {
    const [times] = this.all;
    const group = Math.ceil((3 * times.length) / Math.max(30, this.canvas.clientWidth));
    if (group < 2) return this.all;
    return this.all.map((column, at) => Array.from({ length: Math.ceil(times.length / group) }, (_, part) => {
      const some = column.slice(part * group, (part + 1) * group).filter(known);
      if (!some.length) return null;
      return this.lines[at - 1]?.peak ? Math.max(...some) : some.reduce((sum, each) => sum + each) / some.length;
    }));
  }

  // Take the named lines from a table of series; false if none of them is known, or all that is
  // known of a quiet one is nothing.
  take(series) {
    const there = this.quiet ? (value) => value > 0 : known;
    if (!(series?.t?.length > 1) || !this.lines.some((line) => series[line.name]?.some(there))) return false;
    this.set([series.t, ...this.lines.map((line) => series[line.name] ?? [])]);
    return true;
  }

  point(x) {
    const times = this.data?.[0] ?? [];
    this.over = null;
    if (x !== null && times.length) {
      const t = this.from + ((x - this.left) / this.wide) * (this.to - this.from);
      const after = times.findIndex((each) => each >= t);
      this.over = after < 0 ? times.length - 1 : after > 0 && t - times[after - 1] < times[after] - t ? after - 1 : after;
    }
    this.draw();
  }

  tell() {
    this.lines.forEach((line, at) => {
      const column = this.data[at + 1];
      const value = this.over === null || this.over === undefined ? column.findLast(known) : column[this.over];
      say(this.values[at], known(value) ? (line.show ?? this.show)(value) : "–");
    });
  }

  top(right) {
    let most = 0;
    this.lines.forEach((line, at) => {
      if (Boolean(line.right) === right) for (const value of this.data[at + 1]) if (value > most) most = value;
    });
    return most > 0 ? most * 1.1 : 1e-9;
  }

  draw() {
    const { context: c, canvas } = this;
    if (!this.all || !canvas.isConnected || !sharpen(canvas, c)) return;
    this.data = this.thin();
    const times = this.data[0];
    this.high = canvas.clientHeight - TOP - BELOW;
    this.from = times[0] ?? 0;
    this.to = Math.max(times.at(-1) ?? 1, this.from + (this.linear ? 1e-3 : 5));
    const tops = [this.top(false), this.top(true)];
    c.font = "11px system-ui, sans-serif";
    const levels = this.levels(tops[0]);
    this.left = Math.ceil(Math.max(...levels.map(([, text]) => c.measureText(text).width))) + 8;
    this.wide = canvas.clientWidth - this.left - RIGHT;
    this.axes(c, levels);
    this.marks(c);
    this.lines.forEach((line, at) => this.line(c, line, this.data[at + 1], tops[line.right ? 1 : 0]));
    if (known(this.over)) {
      c.fillStyle = colour("soft");
      c.fillRect(Math.round(this.x(times[this.over])), TOP, 1, this.high);
    }
    this.tell();
  }

  x(t) {
    return this.left + ((t - this.from) / (this.to - this.from)) * this.wide;
  }

  // Where the horizontal lines stand, and what is written beside them.
  levels(top) {
    const step = roundStep(top, this.high / 34);
    return Array.from({ length: top > 1e-9 ? Math.floor(top / step) + 1 : 1 }, (_, at) => {
      const value = Number((at * step).toPrecision(12));
      return [Math.round(TOP + this.high * (1 - value / top)), this.show(value)];
    });
  }

  axes(c, levels) {
    c.textBaseline = "middle";
    c.textAlign = "right";
    for (const [y, text] of levels) {
      c.fillStyle = colour("faint");
      c.fillRect(this.left, y, this.wide, 1);
      c.fillStyle = colour("soft");
      c.fillText(text, this.left - 6, y);
    }
    c.textAlign = "center";
    const wall0 = (this.linear ? 0 : this.app.clock().wall0) ?? 0;
    const ticks = this.wide / 62;
    const span = this.to - this.from;
    const each = this.linear || span < 4 ? roundStep(span, ticks) : TIMES.find((time) => time >= span / ticks) ?? 86400;
    for (let t = Math.ceil((this.from + wall0) / each) * each - wall0; t <= this.to; t += each) {
      const x = this.x(t);
      if (x < this.left + 20 || x > this.left + this.wide - 16) continue;
      c.fillText(this.linear ? `${Number(t.toPrecision(6))} s` : moment(t, this.app.clock()), x, TOP + this.high + 12);
    }
  }

  marks(c) {
    if (this.unmarked) return;
    c.fillStyle = colour("bad");
    c.globalAlpha = 0.5;
    for (const mark of this.app.store.get("marks") ?? []) {
      if (mark.t >= this.from && mark.t <= this.to) c.fillRect(Math.round(this.x(mark.t)), TOP, 1, this.high);
    }
    c.globalAlpha = 1;
  }

  line(c, line, column, top) {
    const y = (value) => TOP + this.high * (1 - value / top);
    const tone = colour(`c${line.colour}`);
    c.strokeStyle = tone;
    c.lineWidth = 1.6;
    c.lineJoin = "round";
    c.setLineDash(line.dash ?? []);
    const under = this.lines.length === 1;
    for (const [first, last] of this.runs(column)) {
      c.beginPath();
      for (let at = first; at <= last; at += 1) c.lineTo(this.x(this.data[0][at]), y(column[at]));
      if (first === last) c.lineTo(this.x(this.data[0][first]) + 1.5, y(column[first]));
      c.stroke();
      if (!under) continue;
      c.lineTo(this.x(this.data[0][last]), TOP + this.high);
      c.lineTo(this.x(this.data[0][first]), TOP + this.high);
      c.fillStyle = tone;
      c.globalAlpha = 0.1;
      c.fill();
      c.globalAlpha = 1;
    }
    c.setLineDash([]);
  }

  // Stretches without a gap, as first and last index.
  * runs(column) {
    let first = -1;
    for (let at = 0; at <= this.data[0].length; at += 1) {
      const there = at < this.data[0].length && known(column[at]);
      if (there && first < 0) first = at;
      if (!there && first >= 0) {
        yield [first, at - 1];
        first = -1;
      }
    }
  }
}
