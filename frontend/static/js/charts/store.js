/** Curves of runs: roll-ups from the API, live points merged into them, keyed by series and step. */

import { api } from "../api.js";
import { toNumber } from "../format.js";
import { plotly } from "./plot.js";

/**
 * A bucket: [step, first, last, min, max, mean, count, nonfinite, at]; null where no value is finite.
 * @typedef {[number, number|null, number|null, number|null, number|null, number|null, number, number, number]} Bucket
 * @typedef {{id: number, run: string, name: string, axis: string, attempt: number, level: number, buckets: Bucket[], cursor: number, top: number}} Curve
 * @typedef {{id: number, name: string, axis: string, attempt: number, last_step: number|null, last_at: number|null, last: number|string|null}} SeriesRow
 */

const MAX_LIVE_BUCKETS = 3000;

export class Store {
  /** @param {{runs: any[], series: Record<string, SeriesRow[]>, clocks: Record<string, number[][]>}} data */
  constructor(data) {
    this.runs = data.runs;
    /** @type {Record<string, Map<number, SeriesRow>>} */
    this.series = {};
    for (const run of data.runs) this.series[run.id] = new Map((data.series[run.id] || []).map((row) => [row.id, row]));
    this.clocks = data.clocks;
    /** @type {Map<string, Curve[]>} by "run name" */
    this.curves = new Map();
    /** @type {Map<string, Set<() => void>>} by metric name */
    this.listeners = new Map();
    /** @type {Set<() => void>} */
    this.newSeries = new Set();
    /** @type {Map<string, {names: Set<string>, promise: Promise<void>}>} by run */
    this.pending = new Map();
    /** @type {Set<string>} */
    this.stale = new Set();
    /** Live points of curves whose roll-up is on its way. @type {Map<string, [number, any][]>} */
    this.held = new Map();
  }

  /** Names that any of the runs has. */
  names() {
    const found = new Set();
    for (const rows of Object.values(this.series)) for (const row of rows.values()) found.add(row.name);
    return [...found].sort();
  }

  /** The newest value of a metric: of the newest attempt. @param {string} run @param {string} name @returns {SeriesRow | undefined} */
  newest(run, name) {
    let best;
    for (const row of this.series[run]?.values() || []) {
      if (row.name === name && (!best || row.attempt > best.attempt || (row.attempt === best.attempt && (row.last_at || 0) > (best.last_at || 0)))) best = row;
    }
    return best;
  }

  /**
   * Load these metrics of a run, unless they are here. Requests of one moment travel together.
   * @param {string} run
   * @param {string[]} names
   */
  load(run, names) {
    const known = new Set([...this.series[run].values()].map((row) => row.name));
    const missing = names.filter((name) => known.has(name) && (!this.curves.has(`${run} ${name}`) || this.stale.has(`${run} ${name}`)));
    if (!missing.length) return Promise.resolve();
    let waiting = this.pending.get(run);
    if (!waiting) {
      const collected = /** @type {Set<string>} */ (new Set());
      const promise = new Promise((resolve) => setTimeout(resolve, 20)).then(() => {
        this.pending.delete(run);
        return this.fetch(run, [...collected]);
      });
      waiting = { names: collected, promise };
      this.pending.set(run, waiting);
    }
    for (const name of missing) {
      waiting.names.add(name);
      if (!this.held.has(`${run} ${name}`)) this.held.set(`${run} ${name}`, []);
    }
    return waiting.promise;
  }

  /** @param {string} run @param {string[]} names */
  async fetch(run, names) {
    const query = new URLSearchParams({ names: names.join(",") });
    let answer;
    try {
      answer = await asked(`runs/${run}/points?${query}`);
    } catch (error) {
      for (const name of names) this.held.delete(`${run} ${name}`);
      throw error;
    }
    this.absorb(run, names, answer.cursor, answer.series);
  }

  /**
   * Roll-ups that came for a run, with the live points that were held back meanwhile.
   * @param {string} run
   * @param {string[]} names
   * @param {number} cursor
   * @param {any[]} series
   */
  absorb(run, names, cursor, series) {
    const found = /** @type {Map<string, Curve[]>} */ (new Map(names.map((name) => [name, []])));
    for (const item of series) {
      const curve = { ...item, run, cursor, top: -1 };
      curve.top = item.buckets.length ? item.buckets[item.buckets.length - 1][0] + 2 ** item.level - 1 : -1;
      found.get(item.name)?.push(curve);
    }
    for (const [name, curves] of found) {
      this.curves.set(`${run} ${name}`, curves);
      this.stale.delete(`${run} ${name}`);
      const held = this.held.get(`${run} ${name}`) || [];
      this.held.delete(`${run} ${name}`);
      for (const [at, item] of held) this.apply(run, at, [item]);
      this.changed(name);
    }
  }

  /**
   * Points that came live, or were fetched after a cursor. Applying them twice changes nothing.
   * @param {string} run
   * @param {number} cursor
   * @param {{id: number, name: string, axis: string, attempt: number, points: [number, number, number|string][]}[]} series
   */
  apply(run, cursor, series) {
    for (const item of series) {
      this.remember(run, item);
      const key = `${run} ${item.name}`;
      this.held.get(key)?.push([cursor, item]);
      const curves = this.curves.get(key);
      if (!curves) continue; // not shown yet: it is loaded whole when it is
      let curve = curves.find((one) => one.id === item.id);
      if (!curve) {
        curve = { id: item.id, run, name: item.name, axis: item.axis, attempt: item.attempt, level: 0, buckets: [], cursor: 0, top: -1 };
        curves.push(curve);
        curves.sort((a, b) => a.attempt - b.attempt);
      }
      if (cursor <= curve.cursor) continue;
      if (!merge(curve, item.points)) {
        this.stale.add(key);
        this.load(run, [item.name]).catch(() => undefined);
      }
      this.changed(item.name);
    }
  }

  /** @param {string} run @param {any} item */
  remember(run, item) {
    const [step, at, value] = item.points[item.points.length - 1];
    const row = this.series[run].get(item.id);
    if (!row) {
      this.series[run].set(item.id, { id: item.id, name: item.name, axis: item.axis, attempt: item.attempt, last_step: step, last_at: at, last: value });
      for (const listener of this.newSeries) listener();
    } else if (row.last_step === null || step >= row.last_step) {
      Object.assign(row, { last_step: step, last_at: at, last: value });
    }
  }

  /** Where the axes stood, as live events bring it. @param {string} run @param {any[]} rows */
  addClocks(run, rows) {
    const known = this.clocks[run];
    for (const row of rows) {
      if (known.length && row.at <= known[known.length - 1][1]) continue;
      known.push([row.attempt, row.at, row.trainer_step, row.rollout_step, row.environment_step, row.tokens]);
    }
  }

  /** @param {string} name @param {() => void} listener */
  listen(name, listener) {
    const set = this.listeners.get(name) || new Set();
    set.add(listener);
    this.listeners.set(name, set);
  }

  /** @param {string} name */
  changed(name) {
    for (const listener of this.listeners.get(name) || []) listener();
  }
}

/**
 * Points after a cursor over HTTP, page by page.
 * @param {string} run
 * @param {number} after
 * @param {(cursor: number, series: any[]) => void} apply
 */
export async function pointsAfter(run, after, apply) {
  let cursor = after;
  for (;;) {
    const answer = await api(`runs/${run}/points?after=${cursor}`);
    apply(answer.cursor, answer.series);
    cursor = answer.cursor;
    if (!answer.more) return;
  }
}

/** Curves from the API; what draws them is loaded meanwhile. @param {string} path */
export function asked(path) {
  const coming = api(path);
  plotly().catch(() => undefined); // whoever draws hears of it
  return coming;
}

/**
 * Merge raw points; false where the roll-up cannot say what they change, so that it is fetched anew.
 * @param {Curve} curve
 * @param {[number, number, number|string][]} points
 */
export function merge(curve, points) {
  for (const [step, at, given] of points) {
    const value = toNumber(given);
    const finite = Number.isFinite(value) ? value : null;
    const start = Math.floor(step / 2 ** curve.level) * 2 ** curve.level;
    if (curve.level === 0) {
      const bucket = /** @type {Bucket} */ ([step, finite, finite, finite, finite, finite, finite === null ? 0 : 1, finite === null ? 1 : 0, at]);
      const last = curve.buckets[curve.buckets.length - 1];
      if (!last || step > last[0]) curve.buckets.push(bucket);
      else place(curve.buckets, bucket);
    } else if (step > curve.top) {
      const last = curve.buckets[curve.buckets.length - 1];
      if (last && last[0] === start) extend(last, finite, at);
      else curve.buckets.push([start, finite, finite, finite, finite, finite, finite === null ? 0 : 1, finite === null ? 1 : 0, at]);
    } else {
      return false;
    }
    curve.top = Math.max(curve.top, step);
  }
  return curve.buckets.length <= MAX_LIVE_BUCKETS;
}

/** @param {Bucket[]} buckets @param {Bucket} bucket */
function place(buckets, bucket) {
  let index = buckets.length;
  while (index > 0 && buckets[index - 1][0] > bucket[0]) index -= 1;
  if (index > 0 && buckets[index - 1][0] === bucket[0]) buckets[index - 1] = bucket;
  else buckets.splice(index, 0, bucket);
}

/** @param {Bucket} bucket @param {number|null} value @param {number} at */
function extend(bucket, value, at) {
  bucket[8] = at;
  if (value === null) {
    bucket[7] += 1;
    return;
  }
  const count = bucket[6];
  bucket[1] ??= value;
  bucket[2] = value;
  bucket[3] = bucket[3] === null ? value : Math.min(bucket[3], value);
  bucket[4] = bucket[4] === null ? value : Math.max(bucket[4], value);
  bucket[5] = ((bucket[5] ?? 0) * count + value) / (count + 1);
  bucket[6] = count + 1;
}
