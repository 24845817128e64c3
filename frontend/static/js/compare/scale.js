/** Where a value stands on an axis of parallel coordinates, and which value stands at a place. */

import { toNumber } from "../format.js";

/**
 * @typedef {{name: string, label: string, kind: "number"|"log"|"category", metric: boolean, values: (number|string|null)[]}} Axis
 * @typedef {{at: (value: number|string|null) => number|null, ticks: {share: number, text: number|string}[], steps: number[]}} Scale `at`: share of the axis from below; null: no place
 */

const TICKS = 5;

/** @param {Axis} axis @returns {Scale} */
export function scaleOf(axis) {
  if (axis.kind === "category") return categories(axis);
  const finite = axis.values.map((value) => (value === null ? NaN : toNumber(value))).filter(Number.isFinite);
  if (!finite.length) return { at: () => null, ticks: [], steps: [] };
  // Halves: the difference of two values may be more than a float holds.
  const turn = axis.kind === "log" ? Math.log10 : (/** @type {number} */ x) => x / 2;
  const back = axis.kind === "log" ? (/** @type {number} */ x) => 10 ** x : (/** @type {number} */ x) => 2 * x;
  const low = turn(Math.min(...finite));
  const high = turn(Math.max(...finite));
  const share = (/** @type {number} */ value) => (high > low ? (turn(value) - low) / (high - low) : 0.5);
  const values = [...new Set(finite)].sort((a, b) => a - b);
  const ticks = values.length <= TICKS ? values : Array.from({ length: TICKS }, (_, i) => back(low + ((high - low) * i) / (TICKS - 1)));
  return {
    at: (value) => {
      const number = value === null ? NaN : toNumber(value);
      return Number.isFinite(number) ? share(number) : null;
    },
    ticks: ticks.map((value) => ({ share: share(value), text: value })),
    steps: values.map(share),
  };
}

/** Text in the order of the alphabet, digits by their value. @param {Axis} axis @returns {Scale} */
function categories(axis) {
  const names = /** @type {string[]} */ ([...new Set(axis.values.filter((value) => value !== null))]).sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  const share = (/** @type {number} */ place) => (names.length > 1 ? place / (names.length - 1) : 0.5);
  const every = Math.ceil(names.length / 12);
  return {
    at: (value) => (value === null ? null : share(names.indexOf(String(value)))),
    ticks: names.map((text, place) => ({ share: share(place), text })).filter((_, place) => place % every === 0),
    steps: names.map((_, place) => share(place)),
  };
}
