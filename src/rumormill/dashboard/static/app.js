// The frame of the page: which view is shown (the address says it), the stream behind it, the time
// slider of recordings, and the keys.

import { el, fill, moment, say } from "./dom.js";
import { ask, post, Store, Stream } from "./source.js";
import { compare } from "./view-compare.js";
import { eventView } from "./view-event.js";
import { overlay } from "./view-overlay.js";
import { overview } from "./view-overview.js";
import { protocol } from "./view-protocol.js";
import { history, lake, reach } from "./view-tables.js";
import { topic } from "./view-topic.js";

const VIEWS = { overview, overlay, topic, event: eventView, history, reach, lake, protocol, compare };
const SPEEDS = [0.01, 0.1, 0.5, 1, 2, 5, 10, 60];
const HELP = [
  ["1 – 9", "the views, in their order"],
  ["/", "to the filter"],
  ["Space, p", "play or pause: the live tail, an event, a recording"],
  ["← →", "in a recording: a second back or forth"],
  ["↑ ↓", "in lists: the row before or after; on the overlay: the peer beside"],
  ["+ − 0", "on the overlay: nearer, farther, all of it"],
  ["?", "this list"],
];
const PLAYABLE = ["trace", "simulation"];
const at = (id) => document.getElementById(id);

class App {
  constructor() {
    this.store = new Store();
    this.shown = null;
    this.pending = false;
    const block = at("snapshot");
    this.still = Boolean(block);
    this.stream = new Stream({
      snapshot: (data) => { this.store.snapshot(data); this.changed(); },
      update: (data) => { this.store.update(data); this.changed(); },
      state: (kind, text) => this.state(kind, text),
    });
    this.frame();
    addEventListener("hashchange", () => this.navigate());
    addEventListener("keydown", (event) => this.pressed(event));
    addEventListener("resize", () => this.reveal());
    if (this.still) {
      this.store.snapshot(JSON.parse(block.textContent));
      this.state("still", "a still, not live");
    }
    this.navigate();
  }

  // --- the address: #/view?name=value ---
  route() {
    const [path, query = ""] = location.hash.replace(/^#\/?/, "").split("?");
    return { view: Object.hasOwn(VIEWS, path) ? path : "overview", query: new URLSearchParams(query) };
  }

  address(view, changes = {}) {
    const { view: now, query } = this.route();
    const next = new URLSearchParams();
    const keep = view === now ? [...query.keys()] : ["topic"];
    for (const name of keep) if (query.get(name)) next.set(name, query.get(name));
    for (const [name, value] of Object.entries(changes)) {
      if (value === null || value === undefined || value === "") next.delete(name);
      else next.set(name, value);
    }
    const text = next.toString();
    return `#/${view}${text ? `?${text}` : ""}`;
  }

  param(name) {
    return this.route().query.get(name) ?? "";
  }

  // Keep something in the address; `step` makes it a place to go back to.
  keep(changes, step = false) {
    const to = this.address(this.route().view, changes);
    if (to === location.hash) return;
    globalThis.history[step ? "pushState" : "replaceState"](null, "", to);
    this.navigate();
  }

  clock() {
    return this.store.get("clock") ?? {};
  }

  source() {
    return this.store.get("source") ?? {};
  }

  navigate() {
    const { view, query } = this.route();
    if (this.shown?.name !== view) {
      this.shown?.view.destroy?.();
      fill(at("main"));
      this.shown = { name: view, view: VIEWS[view].create(at("main"), this) };
      document.title = `${VIEWS[view].title} – rumormill`;
      for (const link of at("nav").children) {
        if (link.dataset.view === view) link.setAttribute("aria-current", "page");
        else link.removeAttribute("aria-current");
      }
      this.reveal();
    }
    for (const link of at("nav").children) link.href = this.address(link.dataset.view);
    if (!this.still) {
      const asked = new URLSearchParams({ views: view });
      for (const name of VIEWS[view].asks ?? []) if (query.get(name)) asked.set(name, query.get(name));
      this.stream.open(`./stream?${asked}`);
    }
    this.changed();
  }

  // On a narrow screen the views scroll sideways; the chosen one is to be in sight.
  reveal() {
    at("nav").querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  }

  changed() {
    if (this.pending) return;
    this.pending = true;
    queueMicrotask(() => {
      this.pending = false;
      this.head();
      this.slider();
      this.shown.view.update(this.route().query);
      if (!this.painted && this.store.get("source")) {
        this.painted = true;
        requestAnimationFrame(() => setTimeout(() => performance.mark("first picture")));
      }
    });
  }

  state(kind, text) {
    at("state").className = kind;
    say(at("state"), text);
  }

  // --- what does not change with the view ---
  frame() {
    fill(at("nav"), Object.entries(VIEWS).map(([name, view], number) =>
      el("a", { href: `#/${name}`, "data-view": name }, view.title, el("kbd", {}, String(number + 1)))));
    fill(at("help"), el("h2", {}, "Keys"),
      el("dl", { className: "facts" }, HELP.map(([key, text]) => [el("dt", {}, key), el("dd", {}, text)])),
      el("form", { method: "dialog", className: "bar" }, el("button", { autofocus: true }, "Close")));
    at("keys").addEventListener("click", () => at("help").showModal());
    document.querySelector(".skip").addEventListener("click", (event) => {
      event.preventDefault();
      at("main").focus();
    });
    this.state("", "connecting");
    this.play = el("button", { type: "button", className: "main", onclick: () => this.toggle() }, "Play");
    this.slide = el("input", { type: "range", "aria-label": "Time of the recording", step: "any",
      oninput: () => { this.held = true; say(this.time, this.moment(Number(this.slide.value))); },
      onchange: () => { this.held = false; this.send({ at: Number(this.slide.value) }); } });
    this.ticks = el("div", { className: "marks" });
    this.time = el("span", { className: "num small" });
    this.speed = el("select", { "aria-label": "Speed", onchange: () => this.send({ speed: Number(this.speed.value) }) },
      this.fast = el("option", { value: 0 }, "fast"), SPEEDS.map((each) => el("option", { value: each }, `${each} ×`)));
    fill(at("time"), el("div", { className: "bar" }, this.play,
      el("div", { className: "slide" }, this.ticks, this.slide), this.time, this.speed));
  }

  head() {
    const source = this.source();
    say(at("title"), source.title ?? "");
    at("title").title = source.command ?? source.title ?? "";
    const badges = [source.kind, source.protocol, source.seed === null || source.seed === undefined ? null : `seed ${source.seed}`]
      .filter(Boolean);
    if (badges.join() === this.badges) return;
    this.badges = badges.join();
    fill(at("badges"), badges.map((text) => el("span", { className: "badge" }, text)));
  }

  moment(t) {
    const { end } = this.clock();
    return `${moment(t, this.clock())}${typeof end === "number" ? ` of ${moment(end, this.clock())}` : ""}`;
  }

  slider() {
    const { now, start = 0, playing, speed } = this.clock();
    const end = this.clock().end ?? now;
    const shown = PLAYABLE.includes(this.source().kind) && typeof now === "number" && !this.still;
    at("time").hidden = !shown;
    if (!shown) return;
    this.slide.min = start;
    this.slide.max = end;
    if (!this.held) {
      this.slide.value = now;
      say(this.time, this.moment(now));
    }
    say(this.play, playing ? "Pause" : "Play");
    this.play.disabled = this.slide.disabled && !playing && now >= end;
    // A simulation goes as fast as it can unless it is held back, and never back.
    this.slide.disabled = this.source().kind !== "trace";
    this.fast.hidden = this.source().kind === "trace";
    if (document.activeElement !== this.speed) this.speed.value = speed ?? 0;
    const marks = this.store.get("marks") ?? [];
    const drawn = `${marks.length} ${start} ${end}`;
    if (drawn === this.drawnMarks) return;
    this.drawnMarks = drawn;
    fill(this.ticks, marks.map((mark) => el("i", {
      className: mark.kind === "start" ? "start" : "", title: mark.text ?? mark.kind,
      style: { left: `${(100 * (mark.t - start)) / (end - start || 1)}%` },
    })));
  }

  toggle() {
    this.send({ playing: !this.clock().playing });
  }

  async send(what) {
    try {
      await post("./play", what, this.source().token);
    } catch (error) {
      this.state("lost", error.message);
    }
  }

  // A journey from the server, or from the still.
  async journey(id) {
    const kept = (this.store.get("journeys") ?? []).find((each) => each.id === id);
    if (kept || this.still) {
      if (!kept) throw new Error("This still does not hold that event's way.");
      return kept;
    }
    return ask(`./events/${encodeURIComponent(id)}`);
  }

  pressed(event) {
    // A dialog that was just closed has the focus until the next frame; what is typed is not for it.
    const target = event.target.closest("dialog:not([open])") ? document.body : event.target;
    const typing = target.closest("input:not([type=range]), select, textarea, dialog");
    if (typing || event.ctrlKey || event.metaKey || event.altKey) return;
    const views = Object.keys(VIEWS);
    if (event.key >= "1" && event.key <= "9") location.hash = this.address(views[event.key - 1]);
    else if (event.key === "/") document.querySelector("[data-filter]")?.focus();
    else if (event.key === "?") at("help").showModal();
    else if (event.key === "p" || (event.key === " " && !target.closest("button, a, summary"))) {
      if (!this.shown.view.toggle?.() && !at("time").hidden) this.toggle();
    } else if (event.key.startsWith("Arrow") && !at("time").hidden && !this.slide.disabled && target === document.body) {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!step) return;
      this.send({ at: this.clock().now + step });
    } else return;
    event.preventDefault();
  }
}

new App();
