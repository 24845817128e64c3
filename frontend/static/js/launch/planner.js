/** What the run of a spec takes: memory by component, FLOPs, and tokens at the most. */

import { h } from "../dom.js";
import { number, size } from "../format.js";
import { t } from "../i18n.js";

/** @typedef {{kind: string, steps: number, tokens: number, training_flops: number, generation_flops: number}} Stage */
/**
 * @typedef {{
 *   parameters: {total: number}, length: number, slots: number,
 *   trainer: {weights: number, gradients: number, optimizer: number, copy: number, total: number},
 *   rollout: {weights: number, states: number, kv: number, total: number},
 *   trained_token_flops: number, generated_token_flops: number, stages: Stage[],
 * }} Plan
 */

/**
 * @param {Plan | null} plan null where the spec is not valid
 * @returns {HTMLElement[]}
 */
export function planner(plan) {
  if (!plan) return [h("p", { class: "muted" }, t("Shown once the spec is valid."))];
  const { trainer, rollout } = plan;
  return [
    facts(t("Model"), [[t("parameters"), number(plan.parameters.total)]]),
    facts(t("Memory of a trainer process"), [
      [t("weights"), size(trainer.weights)],
      [t("gradients"), size(trainer.gradients)],
      [t("optimizer"), size(trainer.optimizer)],
      [t("copy for products"), size(trainer.copy)],
      [t("together"), size(trainer.total)],
    ]),
    facts(t("Memory of a rollout worker, %(n)s slots", { n: plan.slots }), [
      [t("weights"), size(rollout.weights)],
      [t("states"), size(rollout.states)],
      [t("keys and values"), size(rollout.kv)],
      [t("together"), size(rollout.total)],
    ]),
    facts(t("FLOPs at %(n)s tokens", { n: number(plan.length) }), [
      [t("trained token"), flops(plan.trained_token_flops)],
      [t("generated token"), flops(plan.generated_token_flops)],
    ]),
    ...plan.stages.map((stage) =>
      facts(t("A step of %(stage)s, at the most", { stage: stage.kind }), [
        [t("tokens"), number(stage.tokens)],
        [t("FLOPs"), flops(stage.training_flops + stage.generation_flops)],
      ]),
    ),
    h("p", { class: "hint" }, t("Activations come on top; short trajectories and shared prefixes take away.")),
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
