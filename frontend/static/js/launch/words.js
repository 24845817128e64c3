/** The planner's names, for people. */

import { t } from "../i18n.js";

/** @type {Record<string, () => string>} */
const PHASES = {
  rollout: () => t("rollout"),
  "log-prob pass": () => t("log-prob pass"),
  "critic pass": () => t("critic pass"),
  "teacher pass": () => t("teacher pass"),
  "actor update": () => t("policy update"),
  "critic update": () => t("critic update"),
};

/** @type {Record<string, () => string>} */
const PARTS = {
  ...PHASES,
  prefill: () => t("prefill"),
  decoding: () => t("decoding"),
  "log-probs": () => t("log-probs"),
  values: () => t("values"),
  teachers: () => t("teachers"),
  "weight sync": () => t("weight sync"),
  offload: () => t("offloading"),
};

/** @type {Record<string, () => string>} */
const LIMITS = {
  arithmetic: () => t("arithmetic"),
  weights: () => t("reading weights"),
  caches: () => t("reading keys, values and states"),
  links: () => t("links between devices"),
  host: () => t("the link to the host"),
};

/** @type {Record<string, (devices: number) => string>} */
const CHANGES = {
  engine_sleeps: () => t("an engine that sleeps while training"),
  logits_chunked: () => t("logits in chunks"),
  sequence_parallel: () => t("sequences over the devices of a node"),
  offload: () => t("models that leave the device when unused"),
  moments_8bit: () => t("moments of 8 bits"),
  optimizer_on_host: () => t("the optimizer in the hosts' RAM"),
  critic_1b: () => t("a critic of 1 billion parameters"),
  no_reference: () => t("no KL term and so no reference"),
  lora: () => t("LoRA"),
  more_devices: (devices) => t("%(n)s devices", { n: devices }),
};

/** @type {Record<string, () => string>} */
const REASONS = {
  small_long: () => t("The model is small and trajectories are long: a critic fits and judges every token of them."),
  small: () => t("The model is small: GRPO needs no critic and half of the training time; PPO where credit inside a trajectory matters."),
  large: () => t("The model is large: there is no critic and no reference to hold, and tokens that went off policy keep their gradient."),
  none: () => t("No algorithm fits, whatever is changed: take a smaller model, a shorter context or more devices."),
};

/** @param {string} name */
export const phaseName = (name) => PHASES[name]?.() ?? name;

/** @param {string} name */
export const partName = (name) => PARTS[name]?.() ?? name;

/** @param {string} name */
export const limitName = (name) => LIMITS[name]?.() ?? name;

/** @param {string} name */
export const reason = (name) => REASONS[name]?.() ?? "";

/** @param {string[]} names @param {number} devices */
export const changes = (names, devices) => names.map((name) => CHANGES[name]?.(devices) ?? name).join(" + ");
