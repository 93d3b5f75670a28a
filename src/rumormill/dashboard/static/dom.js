// Elements, figures and names. The one rule of this page: whatever came from outside is a text
// node, never markup; styles are set through the style object, never as an attribute's text.

export function el(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else if (name === "style") for (const key in value) made.style.setProperty(key, value[key]);
    else if (name in made && name !== "list" && name !== "form") made[name] = value;
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.flat(Infinity).filter((each) => each !== null && each !== undefined));
  return made;
}

export function fill(parent, ...children) {
  parent.replaceChildren(
    ...children.flat(Infinity).filter((each) => each !== null && each !== undefined),
  );
}

export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const known = (value) => typeof value === "number" && Number.isFinite(value);

export function count(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toPrecision(3)} G`;
  if (size >= 1e6) return `${(value / 1e6).toPrecision(3)} M`;
  if (size >= 1e4) return Math.round(value).toLocaleString("en").replaceAll(",", "\u202f");
  if (Number.isInteger(value)) return String(value);
  return size >= 100 ? value.toFixed(0) : size >= 10 ? value.toFixed(1) : value.toFixed(2);
}

export const plural = (number, one, many) => `${count(number)} ${number === 1 ? one : many}`;

export function seconds(value) {
  if (!known(value)) return "–";
  const size = Math.abs(value);
  if (size === 0) return "0 s";
  if (size < 1e-3) return `${Math.round(value * 1e6)} µs`;
  if (size < 1) return `${(value * 1e3).toPrecision(3).replace(/\.0+$/, "")} ms`;
  if (size < 120) return `${value.toPrecision(3).replace(/\.0+$/, "")} s`;
  if (size < 7200) return `${Math.round(value / 60)} min`;
  return size < 172800 ? `${Math.round(value / 3600)} h` : `${Math.round(value / 86400)} d`;
}

export function bytes(value) {
  if (!known(value)) return "–";
  const units = ["B", "kB", "MB", "GB", "TB"];
  let at = 0;
  for (; Math.abs(value) >= 1000 && at < units.length - 1; at += 1) value /= 1000;
  return `${at === 0 ? Math.round(value) : value.toPrecision(3)} ${units[at]}`;
}

export const percent = (part, whole) =>
  known(part) && whole > 0 ? `${((100 * part) / whole).toFixed(part === whole ? 0 : 2)} %` : "–";

export const total = (table) =>
  Object.values(table ?? {}).reduce((sum, each) => sum + (known(each) ? each : 0), 0);

const two = (value) => String(value).padStart(2, "0");

// A time of the source: of the wall where it has one, else since its beginning.
export function moment(t, clock, precise = false) {
  if (!known(t)) return "–";
  if (known(clock?.wall0)) {
    const at = new Date((clock.wall0 + t) * 1000);
    const text = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`;
    return precise ? `${text}.${String(at.getMilliseconds()).padStart(3, "0")}` : text;
  }
  if (precise) return `${t.toFixed(3)} s`;
  if (t < 60) return `${Number(t.toFixed(t < 10 ? 1 : 0))} s`;
  const whole = Math.floor(t);
  const minutes = `${two(Math.floor(whole / 60) % 60)}:${two(whole % 60)}`;
  return t < 3600 ? minutes : `${Math.floor(whole / 3600)}:${minutes}`;
}

// A wall time, in seconds since 1970 or as ISO text.
export function wall(value) {
  if (value === null || value === undefined) return "–";
  const at = new Date(known(value) ? value * 1000 : value);
  if (Number.isNaN(at.getTime())) return String(value);
  const day = at.toDateString() === new Date().toDateString() ? "" : `${at.toISOString().slice(0, 10)} `;
  const milli = String(at.getMilliseconds()).padStart(3, "0");
  return `${day}${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}.${milli}`;
}

// An id by its last six characters and a hue of its hash: the same everywhere on the page.
export const shortName = (id) => String(id ?? "").slice(-6);

export function hue(id) {
  let hash = 2166136261;
  for (const each of String(id)) hash = Math.imul(hash ^ each.codePointAt(0), 16777619);
  hash = Math.imul(hash ^ (hash >>> 15), 739982445);
  return `hsl(${((hash ^ (hash >>> 13)) >>> 0) % 360} 55% 52%)`;
}

export function peerName(id, name) {
  if (id === null || id === undefined || id === "") return el("span", { className: "soft" }, "–");
  return el(
    "span",
    { className: "peer", title: String(id) },
    el("i", { style: { background: hue(id) } }),
    name || shortName(id),
  );
}

export function card(title, ...children) {
  return el("section", { className: "card" }, title ? el("h2", {}, title) : null, children);
}

// What a card says below its title.
export function refill(box, ...children) {
  fill(box, box.querySelector(":scope > h2"), children);
}

export function facts(pairs) {
  return el(
    "dl",
    { className: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]),
  );
}

export const empty = (text) => el("p", { className: "empty" }, text);

// Whatever shape a value has, as words.
export function words(value) {
  if (value === null || value === undefined) return "–";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (typeof value === "number") return count(value);
  if (Array.isArray(value)) return value.length ? value.map(words).join(", ") : "none";
  if (typeof value === "object") {
    return Object.entries(value).map(([name, each]) => `${name}: ${words(each)}`).join(" · ") || "none";
  }
  return String(value);
}

// A small table: columns are [heading, (row) => text or node, "r" for figures]; those of which nothing
// is known are left out.
export function table(columns, rows, none = "Nothing yet.") {
  if (!rows.length) return empty(none);
  const cells = columns.map(([, cell]) => rows.map((row) => cell(row) ?? "–"));
  const shown = columns.map((_, at) => at).filter((at) => cells[at].some((cell) => cell !== "–" && cell !== ""));
  const heads = shown.map((at) => el("th", { className: columns[at][2] ?? "", scope: "col" }, columns[at][0]));
  const body = rows.map((_, row) =>
    el("tr", {}, shown.map((at) => el("td", { className: columns[at][2] ?? "" }, cells[at][row]))));
  return el(
    "div",
    { className: "scroll" },
    el("table", { className: "table" }, el("thead", {}, el("tr", {}, heads)), el("tbody", {}, body)),
  );
}

// Horizontal bars, largest first, at most `most`; the rest is summed, not hidden.
export function bars(entries, show = count, most = 8, colour = 1) {
  const sorted = [...entries].filter(([, value]) => value > 0).sort((a, b) => b[1] - a[1]);
  if (!sorted.length) return empty("None.");
  const rest = sorted.slice(most);
  const shown = sorted.slice(0, most);
  if (rest.length) {
    shown.push([`${rest.length} more`, rest.reduce((sum, [, value]) => sum + value, 0)]);
  }
  const largest = Math.max(...shown.map(([, value]) => value));
  return el(
    "div",
    { className: "bars" },
    shown.map(([name, value]) => [
      el("span", { className: "name", title: name }, name),
      el("span", { className: "track" },
        el("i", { className: `s${colour}`, style: { width: `${(100 * value) / largest}%` } })),
      el("span", { className: "num" }, show(value)),
    ]),
  );
}

// Columns of a distribution: [[label, count], …] in the order of the labels.
export function columns(pairs, label = count) {
  if (!pairs?.length) return empty("Nothing yet.");
  const largest = Math.max(...pairs.map(([, value]) => value), 1);
  const every = Math.ceil(pairs.length / 12);
  return el(
    "div",
    { className: "columns" },
    pairs.map(([name, value], at) =>
      el("div", { title: `${label(name)}: ${count(value)}` },
        el("span", {}, pairs.length <= 16 && value ? count(value) : ""),
        el("i", { style: { height: `${(82 * value) / largest}%` } }),
        el("span", {}, at % every === 0 ? label(name) : "\u00a0"))),
  );
}

// One bar of several parts: [[name, value, colour], …].
export function parts(entries) {
  const whole = entries.reduce((sum, [, value]) => sum + (value || 0), 0);
  return el("div", { className: "stack small" },
    el("span", { className: "track" }, entries.map(([name, value, colour]) =>
      el("i", { className: `s${colour}`, title: `${name}: ${count(value)}`,
        style: { width: `${whole ? (100 * (value || 0)) / whole : 0}%` } }))),
    el("div", { className: "key" }, entries.filter(([, value]) => value).map(([name, value, colour]) =>
      el("span", {}, el("i", { className: `swatch s${colour}` }), name, " ", el("b", {}, count(value))))));
}

export function segments(options, chosen, choose) {
  return el(
    "span",
    { className: "segments", role: "group" },
    options.map(([value, text]) =>
      el("button", { type: "button", "aria-pressed": String(value === chosen), onclick: () => choose(value) }, text)),
  );
}

export function option(value, text, chosen) {
  return el("option", { value, selected: value === chosen }, text);
}

const HEIGHT = 30;
const SPARE = 4;
const HEAD = 26;

// A list of any length of which only the rows in sight are in the document.
// columns: [{ head, cell(row) → text or node, width, right, wide, key }]; wide ones are left out on
// phones, those with a key where no row has such a value.
export class Rows {
  constructor({ columns, height, label, key, choose, none = "Nothing yet." }) {
    Object.assign(this, { all: columns, columns, key, choose, height });
    this.rows = [];
    this.chosen = null;
    this.made = new Map();
    this.space = el("div", { className: "space" });
    this.view = el("div", {
      className: "rows", tabIndex: 0, role: "listbox", "aria-label": label,
      onscroll: () => this.draw(),
      onkeydown: (event) => this.pressed(event),
    });
    this.heads = el("div", { className: "heads", "aria-hidden": "true" });
    this.nothing = el("p", { className: "empty" }, none);
    this.view.append(this.heads, this.space);
    this.root = el("div", {}, this.nothing, this.view);
    this.narrow = matchMedia("(max-width: 760px)");
    this.narrow.addEventListener("change", () => this.lay());
    new ResizeObserver(() => this.draw()).observe(this.view);
    this.lay();
  }

  style(column) {
    return `${column.right ? "r " : ""}${column.wide ? "wide" : ""}`;
  }

  lay() {
    const shown = this.columns.filter((each) => !(each.wide && this.narrow.matches));
    this.grid = shown.map((each) => each.width ?? "minmax(0, 1fr)").join(" ");
    this.heads.style.gridTemplateColumns = this.grid;
    fill(this.heads, this.columns.map((each) => el("span", { className: this.style(each) }, each.head)));
    this.redraw();
  }

  // Rows were put before the first: what is looked at stays where it is.
  set(rows, before = 0) {
    this.rows = rows;
    const known = this.all.filter(({ key }) => !key || rows.some((row) => row[key] !== undefined));
    if (known.length !== this.columns.length) {
      this.columns = known;
      this.lay();
    }
    this.view.hidden = !rows.length;
    this.nothing.hidden = rows.length > 0;
    const away = this.view.scrollTop > HEIGHT;
    this.space.style.height = `${rows.length * HEIGHT}px`;
    this.view.style.height = `${Math.min(this.height, HEAD + rows.length * HEIGHT)}px`;
    if (before && away) this.view.scrollTop += before * HEIGHT;
    this.redraw();
  }

  redraw() {
    this.made.clear();
    this.draw();
  }

  draw() {
    const first = Math.max(0, Math.floor(this.view.scrollTop / HEIGHT) - SPARE);
    const last = Math.min(this.rows.length,
      Math.ceil((this.view.scrollTop + this.view.clientHeight) / HEIGHT) + SPARE);
    const made = new Map();
    for (let at = first; at < last; at += 1) made.set(at, this.made.get(at) ?? this.row(at));
    if (made.size === this.made.size && [...made.keys()].every((at) => this.made.has(at))) return;
    this.made = made;
    fill(this.space, [...made.values()]);
  }

  row(at) {
    const row = this.rows[at];
    return el("div", {
      className: "row", role: "option", "aria-selected": String(this.key(row) === this.chosen),
      style: { top: `${at * HEIGHT}px`, "grid-template-columns": this.grid },
      onclick: () => this.pick(at),
    }, this.columns.map((each) => el("span", { className: this.style(each) }, each.cell(row, at) ?? "–")));
  }

  pick(at) {
    if (at < 0 || at >= this.rows.length) return;
    this.chosen = this.key(this.rows[at]);
    this.redraw();
    this.choose?.(this.rows[at]);
  }

  select(key) {
    if (key === this.chosen) return;
    this.chosen = key;
    this.redraw();
  }

  pressed(event) {
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (!step && event.key !== "Home" && event.key !== "End") return;
    event.preventDefault();
    const now = this.rows.findIndex((row) => this.key(row) === this.chosen);
    const last = this.rows.length - 1;
    const to = event.key === "Home" ? 0 : event.key === "End" ? last : Math.min(Math.max(now + step, 0), last);
    const top = to * HEIGHT;
    if (top < this.view.scrollTop) this.view.scrollTop = top;
    const bottom = top + HEIGHT + HEAD - this.view.clientHeight;
    if (bottom > this.view.scrollTop) this.view.scrollTop = bottom;
    this.pick(to);
  }
}
