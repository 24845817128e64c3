/** The unit of a metric outside the curated panels, from how its name ends. */

import { t } from "../i18n.js";

/** @type {[RegExp, () => string, boolean?][]} ending, unit, whether it is a share; the first that matches */
const ENDINGS = [
  [/(accuracy|success|fraction|_share|_rate|_rate_low|_rate_high)$/, () => t("share"), true],
  [/^rollout\/(out_of_\w+|timed_out|broken)$/, () => t("share"), true],
  [/^reward\/process_weight$/, () => t("factor")],
  [/^reward\/process_correlation$/, () => t("correlation")],
  [/^reward\//, () => t("reward")],
  [/\/refill_rounds$/, () => t("batches sampled")],
  [/\/sampled_per_accepted$/, () => t("groups")],
  [/\/ess$/, () => t("share of the samples"), true],
  [/tokens_per_s$/, () => t("tokens a second")],
  [/trajectories_per_s$/, () => t("trajectories a second")],
  [/_s$/, () => t("seconds")],
  [/[/_](length|tokens)$/, () => t("tokens")],
  [/\/tasks$/, () => t("tasks")],
  [/\/turns$/, () => t("turns")],
  [/[/_]kl(_|$)/, () => t("nats a token")],
  [/\/lr$/, () => t("learning rate")],
  [/importance_weight/, () => t("ratio")],
  [/grad_norm$/, () => t("norm")],
];

/** @param {string} name @returns {{unit: string, share: boolean}} */
export function unitOf(name) {
  const [, unit, share] = ENDINGS.find(([ending]) => ending.test(name)) || [null, () => t("value")];
  return { unit: unit(), share: Boolean(share) };
}
