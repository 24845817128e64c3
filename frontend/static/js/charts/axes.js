/** The horizontal axes and how a bucket finds its place on each; smoothing. */

import { t } from "../i18n.js";

export const AXES = ["trainer_step", "rollout_step", "tokens", "wall"];
export const OWN_AXIS = "own"; // each metric's: of curves that are no run's, so that no clock converts them
const CLOCK_COLUMN = /** @type {Record<string, number>} */ ({ trainer_step: 2, rollout_step: 3, environment_step: 4, tokens: 5 });

/** @param {string} axis */
export function axisTitle(axis) {
  return /** @type {Record<string, string>} */ ({
    trainer_step: t("trainer step"),
    rollout_step: t("rollout step"),
    environment_step: t("environment step"),
    tokens: t("tokens trained on"),
    wall: t("minutes since the run's first value"),
  })[axis] || axis;
}

/**
 * The x of a bucket; null where the clock of the attempt does not reach it.
 * @param {{axis: string, attempt: number, level: number}} curve
 * @param {any[]} bucket
 * @param {string} axis wanted
 * @param {number[][]} clocks [attempt, at, trainer_step, rollout_step, environment_step, tokens], by time
 * @param {number} start of the run's first value, seconds since 1970
 */
export function place(curve, bucket, axis, clocks, start) {
  if (axis === "wall") return (bucket[8] - start) / 60;
  if (curve.axis === axis || axis === OWN_AXIS) return bucket[0] + (curve.level ? 2 ** curve.level / 2 : 0);
  return interpolate(clocks, curve.attempt, bucket[8], CLOCK_COLUMN[axis]);
}

/**
 * @param {number[][]} clocks
 * @param {number} attempt
 * @param {number} at
 * @param {number} column
 */
function interpolate(clocks, attempt, at, column) {
  let before = null;
  for (const row of clocks) {
    if (row[0] !== attempt) continue;
    if (row[1] >= at) {
      if (!before) return row[column];
      const part = (at - before[1]) / Math.max(row[1] - before[1], 1e-9);
      return before[column] + part * (row[column] - before[column]);
    }
    before = row;
  }
  return before ? before[column] : null;
}

export const SMOOTHINGS = [0, 0.6, 0.85, 0.95];

/**
 * Exponential moving average without the bias of its start; a missing value stays missing.
 * @param {(number|null)[]} values
 * @param {number} weight of the past, in [0, 1)
 */
export function smooth(values, weight) {
  let sum = 0;
  let mass = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    mass = weight * mass + (1 - weight);
    return sum / mass;
  });
}
