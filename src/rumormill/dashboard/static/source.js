// What is known of the source: sections, as snapshots and updates of the stream bring them. Everything
// that grows has a bound.

const PATIENCE = [1, 2, 4, 8, 15];
const UNSEEN = 60_000;
const POINTS = 3600;
const TAIL = 5000;
const MARKS = 1000;
const TOPIC_POINTS = 600;
const TOPICS_KEPT = 64;

const isObject = (value) => value !== null && typeof value === "object" && !Array.isArray(value);

export class Store {
  constructor() {
    this.clear();
  }

  clear() {
    this.sections = {};
    this.topicSeries = new Map();
    this.leftOut = 0;
  }

  get(name) {
    return this.sections[name];
  }

  rows(name) {
    const rows = this.sections[name]?.rows;
    return Array.isArray(rows) ? rows : [];
  }

  snapshot(data) {
    const kept = this.sections.source?.title === data.source?.title ? this.topicSeries : new Map();
    this.sections = {};
    this.topicSeries = kept;
    this.take(data);
    this.leftOut = 0; // what came before the first row is there to seek, not lost to the eye
  }

  update(data) {
    this.take(data);
  }

  take(data) {
    if (!isObject(data)) return;
    for (const [name, section] of Object.entries(data)) {
      if (name === "series") this.series(section);
      else if (name === "tail") this.tail(section);
      else if (name === "marks") this.marks(section);
      else this.sections[name] = section;
    }
    if (data.topics) this.topics(data.clock?.now ?? this.sections.clock?.now);
  }

  series(added) {
    if (!isObject(added) || !Array.isArray(added.t)) return;
    const had = this.sections.series ?? { t: [] };
    const last = had.t.at(-1) ?? -Infinity;
    // A point that is sent again, because its second was not over, replaces the older one.
    const first = added.t[0] ?? Infinity;
    const keep = first > last ? had.t.length : had.t.findIndex((t) => t >= first);
    const made = {};
    for (const name of new Set([...Object.keys(had), ...Object.keys(added)])) {
      const before = had[name] ?? new Array(had.t.length).fill(null);
      const after = added[name] ?? new Array(added.t.length).fill(null);
      if (Array.isArray(after)) made[name] = [...before.slice(0, keep), ...after].slice(-POINTS);
    }
    this.sections.series = made;
  }

  tail(added) {
    if (!Array.isArray(added?.rows)) return;
    const had = this.sections.tail?.rows ?? [];
    this.leftOut += added.more ?? 0;
    this.sections.tail = { ...added, rows: [...had, ...added.rows].slice(-TAIL), fresh: added.rows.length };
  }

  marks(added) {
    if (!Array.isArray(added)) return;
    const key = (mark) => `${mark.t} ${mark.kind} ${mark.peer}`;
    const had = this.sections.marks ?? [];
    const seen = new Set(had.map(key));
    this.sections.marks = [...had, ...added.filter((mark) => !seen.has(key(mark)))].slice(-MARKS);
  }

  // The server sends each topic's present; its past is kept here.
  topics(now) {
    if (typeof now !== "number") return;
    for (const row of this.rows("topics").slice(0, TOPICS_KEPT)) {
      let kept = this.topicSeries.get(row.name);
      if (!kept || kept.t.at(-1) > now) {
        kept = { t: [], rate: [], p50: [], p99: [] };
        this.topicSeries.set(row.name, kept);
        if (this.topicSeries.size > TOPICS_KEPT) this.topicSeries.delete(this.topicSeries.keys().next().value);
      }
      if (kept.t.at(-1) === now) continue;
      kept.t.push(now);
      for (const name of ["rate", "p50", "p99"]) kept[name].push(row[name] ?? null);
      if (kept.t.length > TOPIC_POINTS) for (const name in kept) kept[name].shift();
    }
  }
}

// One stream at a time, from a snapshot on. When it is lost the page says so and tries again; while
// nobody looks at the page it is closed, since watching has a cost.
export class Stream {
  constructor({ snapshot, update, state }) {
    Object.assign(this, { snapshot, update, state });
    this.address = null;
    this.source = null;
    this.failures = 0;
    this.timer = 0;
    document.addEventListener("visibilitychange", () => this.seen());
  }

  open(address) {
    if (address === this.address && this.source) return;
    this.address = address;
    this.failures = 0;
    this.connect();
  }

  connect() {
    this.close();
    const source = new EventSource(this.address);
    this.source = source;
    const take = (what) => (event) => {
      if (source !== this.source) return;
      this.failures = 0;
      what(JSON.parse(event.data));
      this.state("live", "live");
    };
    source.addEventListener("snapshot", take(this.snapshot));
    source.addEventListener("update", take(this.update));
    source.addEventListener("error", () => {
      if (source === this.source) this.lost();
    });
  }

  // The browser would try again by itself, but not after a refusal, and without saying when.
  lost() {
    this.close();
    const wait = PATIENCE[Math.min(this.failures, PATIENCE.length - 1)];
    this.failures += 1;
    this.state("lost", `stream lost, again in ${wait} s`);
    this.timer = setTimeout(() => this.connect(), wait * 1000);
  }

  close() {
    clearTimeout(this.timer);
    this.source?.close();
    this.source = null;
  }

  seen() {
    clearTimeout(this.unseen);
    if (document.hidden) {
      this.unseen = setTimeout(() => {
        this.close();
        this.state("still", "paused while hidden");
      }, UNSEEN);
    } else if (this.address && !this.source) this.connect();
  }
}

export async function ask(path, options) {
  const answer = await fetch(path, options);
  let body = {};
  try {
    body = await answer.json();
  } catch {
    body = {};
  }
  if (!answer.ok) throw new Error(body.error ?? `The server answered ${answer.status}.`);
  return body;
}

export const post = (path, body, token) =>
  ask(path, {
    method: "POST",
    headers: { "Content-Type": "application/json", "X-Rumormill-Token": token ?? "" },
    body: JSON.stringify(body),
  });
