/** Curves of many runs in one request: as they are, or as the means of groups. */

import { Store, asked } from "../charts/store.js";

const GATHER_MS = 10; // panels that come into view together travel together
const POINTS = 3000; // of all curves of a panel together, about

/** Names asked for in one moment are loaded once and together. */
class Together {
  /** @param {(names: string[]) => Promise<void>} fetch */
  constructor(fetch) {
    this.fetch = fetch;
    /** @type {Map<string, Promise<void>>} */
    this.promised = new Map();
    /** @type {Set<string>} */
    this.gathered = new Set();
    /** @type {Promise<void> | null} */
    this.next = null;
  }

  /** @param {string[]} names @returns {Promise<void>} */
  async load(names) {
    for (const name of names) {
      if (this.promised.has(name)) continue;
      this.gathered.add(name);
      this.next ??= new Promise((resolve) => setTimeout(resolve, GATHER_MS)).then(() => this.send());
      this.promised.set(name, this.next);
    }
    await Promise.all(names.map((name) => this.promised.get(name)));
  }

  async send() {
    const names = [...this.gathered];
    this.gathered.clear();
    this.next = null;
    try {
      await this.fetch(names);
    } catch (error) {
      for (const name of names) this.promised.delete(name);
      throw error;
    }
  }
}

/** @param {any[]} runs */
function bucketsFor(runs) {
  return Math.max(80, Math.min(600, Math.floor(POINTS / runs.length)));
}

/** The store of several runs. */
export class RunsStore extends Store {
  /** @param {any} data @param {boolean} bare no bands are drawn */
  constructor(data, bare) {
    super(data);
    this.bare = bare;
    this.together = new Together((names) => this.fetchAll(names));
    const rows = Object.values(this.series).flatMap((of) => [...of.values()]);
    this.known = new Set(rows.map((row) => row.name));
  }

  /** @override @param {string} run @param {string[]} names */
  load(run, names) {
    const stale = names.filter((name) => this.stale.has(`${run} ${name}`));
    if (stale.length) return super.load(run, stale);
    const wanted = names.filter((name) => this.known.has(name));
    for (const name of wanted) {
      const key = `${run} ${name}`;
      if (!this.curves.has(key) && !this.held.has(key)) this.held.set(key, []);
    }
    return this.together.load(wanted);
  }

  /** @param {string[]} names */
  async fetchAll(names) {
    const query = new URLSearchParams({ runs: this.runs.map((run) => run.id).join(","), names: names.join(","), buckets: String(bucketsFor(this.runs)), bare: String(this.bare) });
    const answer = await asked(`compare/curves?${query}`);
    const own = /** @type {Map<string, any[]>} */ (new Map(this.runs.map((run) => [run.id, []])));
    for (const item of answer.series) own.get(item.run)?.push(this.bare ? { ...item, buckets: item.buckets.map(widened) } : item);
    for (const run of this.runs) this.absorb(run.id, names, answer.cursors[run.id], own.get(run.id) || []);
  }
}

/** A bucket of which only the last value is known. @param {any[]} row */
function widened([step, last, count, nonfinite, at]) {
  return [step, null, last, null, null, null, count, nonfinite, at];
}

/** The store of groups of runs: their means, with the interval where buckets have their extremes. */
export class GroupsStore extends Store {
  /** @param {any} data with `group` and the ids of the runs, `of` */
  constructor(data) {
    super(data);
    this.group = data.group;
    this.of = data.of;
    this.together = new Together((names) => this.fetchAll(names));
  }

  /** @override @param {string} _run @param {string[]} names */
  load(_run, names) {
    return this.together.load(names);
  }

  /** @param {string[]} names */
  async fetchAll(names) {
    const query = new URLSearchParams({ runs: this.of.join(","), names: names.join(","), group: this.group, buckets: String(bucketsFor(this.runs)) });
    const answer = await asked(`compare/curves?${query}`);
    answer.groups.forEach((/** @type {any} */ group, /** @type {number} */ place) => {
      const id = String(place);
      const rows = group.curves.flatMap((/** @type {any} */ band, /** @type {number} */ at) => parts(band, at));
      for (const row of rows) this.series[id].set(row.id, { ...row, last_step: lastOf(row)[0], last_at: lastOf(row)[8], last: lastOf(row)[2] });
      this.absorb(id, names, 0, rows);
    });
  }
}

/** @param {any} row */
function lastOf(row) {
  return row.buckets[row.buckets.length - 1];
}

/**
 * A band as curves of two attempts, of which the older is drawn fainter: while every run of the
 * group has a value, and from there on.
 * @param {any} band
 * @param {number} at its place in the group
 */
function parts(band, at) {
  const buckets = band.steps.map((/** @type {number} */ step, /** @type {number} */ i) => [step, band.mean[i], band.mean[i], band.low[i] ?? band.mean[i], band.high[i] ?? band.mean[i], band.mean[i], band.n[i], 0, band.at[i]]);
  const whole = buckets.filter((/** @type {any[]} */ row) => band.whole_until !== null && row[0] <= band.whole_until);
  const rest = buckets.slice(Math.max(0, whole.length - 1));
  const look = { name: band.name, axis: band.axis, level: band.level };
  const found = [];
  if (whole.length) found.push({ ...look, id: 2 * at, attempt: 2, buckets: whole });
  if (rest.length > (whole.length ? 1 : 0)) found.push({ ...look, id: 2 * at + 1, attempt: 1, buckets: rest });
  return found;
}
