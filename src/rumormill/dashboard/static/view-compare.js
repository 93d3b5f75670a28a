// Which protocol for me? Runs side by side: the same figures, the same axes.

import { LineChart } from "./charts.js";
import { bytes, card, count, el, empty, fill, refill, seconds, table, total } from "./dom.js";

const MOST = 6;
// What is compared, how it is shown, and which end is better.
const FIGURES = [
  ["published", (run) => run.totals?.published, count, 0],
  ["delivered", (run) => run.totals?.delivered, count, 1],
  ["pending", (run) => run.totals?.pending, count, -1],
  ["dropped", (run) => (run.totals?.dropped ? total(run.totals.dropped) : undefined), count, -1],
  ["duplicates", (run) => run.totals?.duplicates, count, -1],
  ["copies per delivery", (run) => run.totals?.copies_per_delivery, count, -1],
  ["data sent", (run) => run.totals?.bytes?.data, bytes, -1],
  ["control sent", (run) => run.totals?.bytes?.control, bytes, -1],
  ["half within", (run) => run.latency?.p50, seconds, -1],
  ["99 % within", (run) => run.latency?.p99, seconds, -1],
];

// Several runs' series on one time axis.
function joined(runs, name) {
  const times = [...new Set(runs.flatMap((run) => run.series?.t ?? []))].sort((a, b) => a - b);
  const columns = runs.map((run) => {
    const at = new Map((run.series?.t ?? []).map((t, number) => [t, run.series[name]?.[number] ?? null]));
    return times.map((t) => at.get(t) ?? null);
  });
  return [times, ...columns];
}

// Share of deliveries within a time, from buckets [[le, count], …] of counts of their own.
function shares(runs) {
  const limits = [...new Set(runs.flatMap((run) => (run.latency?.buckets ?? []).map(([le]) => le)))]
    .filter((le) => typeof le === "number" && Number.isFinite(le)).sort((a, b) => a - b);
  const columns = runs.map((run) => {
    const whole = (run.latency?.buckets ?? []).reduce((sum, [, number]) => sum + number, 0);
    let sum = 0;
    const at = new Map((run.latency?.buckets ?? []).map(([le, number]) => [le, (sum += number)]));
    let last = 0;
    return limits.map((le) => { last = at.get(le) ?? last; return whole ? (100 * last) / whole : null; });
  });
  const enough = limits.findIndex((_, at) => columns.every((column) => column[at] === null || column[at] >= 99.9));
  return [limits, ...columns].map((column) => column.slice(0, enough < 0 ? undefined : enough + 1));
}

class Compare {
  constructor(root, app) {
    this.app = app;
    this.box = card("Figures");
    this.charts = [];
    this.plots = el("div", { className: "grid" });
    root.append(el("h1", {}, "Compare"), this.box, this.plots);
  }

  destroy() {
    for (const chart of this.charts) chart.destroy();
  }

  update() {
    const runs = (this.app.store.get("compare")?.runs ?? []).slice(0, MOST);
    if (!runs.length) {
      return refill(this.box, empty("Two or more runs are shown side by side: give several traces, or a simulation that compares protocols."));
    }
    const best = (get, way) => {
      const values = runs.map(get).filter((value) => typeof value === "number");
      return way && values.length > 1 && new Set(values).size > 1 ? (way > 0 ? Math.max(...values) : Math.min(...values)) : undefined;
    };
    refill(this.box, table(
      [["", ([name]) => name], ...runs.map((run, at) => [
        el("span", {}, el("i", { className: `swatch s${at + 1}` }), run.name),
        ([, get, show, way]) => el("span", { className: get(run) !== undefined && get(run) === best(get, way) ? "best" : "" }, show(get(run))), "r"])],
      FIGURES.filter(([, get]) => runs.some((run) => typeof get(run) === "number"))));
    return this.draw(runs);
  }

  draw(runs) {
    const names = runs.map((run) => run.name).join();
    if (names !== this.names) {
      this.names = names;
      for (const chart of this.charts) chart.destroy();
      const lines = runs.map((run, at) => ({ label: run.name, colour: at + 1, dash: at % 2 ? [6, 3] : undefined }));
      const of = (title, show, linear) => new LineChart({ title, show, lines, app: this.app, height: 200, linear, unmarked: true });
      this.charts = [of("Deliveries", (value) => `${count(value)}/s`), of("Copies per delivery", count),
        of("Control bytes", (value) => `${bytes(value)}/s`), of("Delivered within", (value) => `${count(Math.round(value))} %`, true)];
      fill(this.plots, this.charts.map((chart) => chart.root));
    }
    ["deliveries", "copies", "bytes_control"].forEach((name, at) => this.charts[at].set(joined(runs, name)));
    this.charts[3].set(shares(runs));
  }
}

export const compare = { title: "Compare", create: (root, app) => new Compare(root, app) };
