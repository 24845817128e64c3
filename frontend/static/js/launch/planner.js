/** What the run of a spec takes: memory by phase and component, time and FLOPs, and what fits. */

import { h } from "../dom.js";
import { duration, number, size } from "../format.js";
import { t } from "../i18n.js";
import { adviceOn } from "./advice.js";
import { memoryBars } from "./memory_bars.js";
import { limitName, partName } from "./words.js";

/** @typedef {import("./memory_bars.js").Phase} Phase */
/** @typedef {{seconds: number, limiting: string, limit: string}} Time */
/** @typedef {{kind: string, steps: number, tokens: number, training_flops: number, generation_flops: number, phases: Phase[], time: Time}} Stage */
/**
 * @typedef {{
 *   parameters: {total: number}, length: number, slots: number, rollout_phase: Phase,
 *   trained_token_flops: number, generated_token_flops: number, stages: Stage[],
 *   memory: number, seconds: number,
 * }} Plan
 */

/**
 * @param {Plan | null} plan null where the spec is not valid
 * @param {import("./advice.js").Advice | null} advice null where the devices cannot be read
 * @returns {HTMLElement[]}
 */
export function planner(plan, advice) {
  if (!plan) return [h("p", { class: "muted" }, t("Shown once the spec is valid."))];
  return [
    facts(t("Model"), [
      [t("parameters"), number(plan.parameters.total)],
      [t("all processes"), size(plan.memory)],
      [t("all steps, about"), duration(plan.seconds)],
    ]),
    ...plan.stages.map((stage) => memoryBars(t("Memory of a trainer process, %(stage)s", { stage: stage.kind }), stage.phases)),
    memoryBars(t("Memory of a rollout worker, %(n)s slots", { n: plan.slots }), [plan.rollout_phase]),
    ...plan.stages.map((stage) =>
      facts(t("A step of %(stage)s, at the most", { stage: stage.kind }), [
        [t("tokens"), number(stage.tokens)],
        [t("FLOPs"), flops(stage.training_flops + stage.generation_flops)],
        [t("time, about"), duration(stage.time.seconds)],
        [t("limited by"), `${partName(stage.time.limiting)}: ${limitName(stage.time.limit)}`],
      ]),
    ),
    facts(t("FLOPs at %(n)s tokens", { n: number(plan.length) }), [
      [t("trained token"), flops(plan.trained_token_flops)],
      [t("generated token"), flops(plan.generated_token_flops)],
    ]),
    ...(advice ? [adviceOn(advice)] : []),
    h("p", { class: "hint" }, t("Times are estimates without tools and evaluations; short trajectories and shared prefixes take away.")),
  ];
}

/**
 * @param {string} title
 * @param {[string, string][]} rows
 */
function facts(title, rows) {
  return h("div", {}, h("h3", { class: "small" }, title), h("dl", { class: "facts small" }, ...rows.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}

/** Three digits and a decimal prefix: 5.4 M, 55.3 G. @param {number} value */
function flops(value) {
  const prefixes = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"];
  let power = 0;
  while (value >= 999.5 && power < prefixes.length - 1) {
    value /= 1000;
    power += 1;
  }
  return `${Number(value.toPrecision(3))} ${prefixes[power]}`.trimEnd();
}
