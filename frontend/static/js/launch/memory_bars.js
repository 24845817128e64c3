/** Memory by phase as bars: one bar a phase, one piece a group of components, a key below. */

import { h, svg } from "../dom.js";
import { size } from "../format.js";
import { t } from "../i18n.js";
import { phaseName } from "./words.js";

/** @typedef {{name: string, total: number, components: Record<string, number>}} Phase */

/** Groups in the order of a bar; `colour` is a class that sets one of the theme's. */
const GROUPS = [
  { name: () => t("weights"), colour: "series-0", parts: ["weights", "engine weights"] },
  { name: () => t("gradients"), colour: "series-1", parts: ["gradients"] },
  { name: () => t("moments"), colour: "series-2", parts: ["moments"] },
  { name: () => t("copies of weights"), colour: "series-3", parts: ["copy for products", "published weights", "gathered weights"] },
  { name: () => t("critic, reference, teachers"), colour: "series-4", parts: ["critic", "reference", "reward model", "teachers"] },
  { name: () => t("activations"), colour: "series-5", parts: ["layer", "layers", "checkpoints", "teachers' states"] },
  { name: () => t("logits"), colour: "series-6", parts: ["logits"] },
  { name: () => t("keys, values and states"), colour: "key-text", parts: ["keys and values", "lightning states"] },
  { name: () => t("runtime and fragmentation"), colour: "series-7", parts: ["fragmentation", "context"] },
];
const HEIGHT = 10;

/**
 * @param {string} title
 * @param {Phase[]} phases
 * @param {number} limit bytes of a device, marked in the bars; 0: there is none
 * @returns {HTMLElement}
 */
export function memoryBars(title, phases, limit = 0) {
  const full = Math.max(limit, ...phases.map((phase) => phase.total));
  const peak = phases.reduce((most, phase) => (phase.total > most.total ? phase : most));
  const rows = phases.map((phase) => h("div", { class: "memory-row" }, h("span", { class: "muted" }, phaseName(phase.name)), bar(phase, full, limit), h("span", { class: "memory-total" }, size(phase.total))));
  const keys = grouped(peak).map((group) => h("li", {}, h("span", { class: `key ${group.colour}` }), ` ${group.name} `, h("span", { class: "faint" }, size(group.bytes))));
  return h("div", { class: "memory" }, h("h3", { class: "small" }, title), ...rows, h("ul", { class: "memory-key small", "aria-label": t("In %(phase)s", { phase: phaseName(peak.name) }) }, ...keys));
}

/** @param {Phase} phase @param {number} full @param {number} limit */
function bar(phase, full, limit) {
  const picture = svg("svg", { class: "memory-bar", viewBox: `0 0 1000 ${HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": `${phaseName(phase.name)}: ${size(phase.total)}` });
  let x = 0;
  for (const group of grouped(phase)) {
    const width = (1000 * group.bytes) / full;
    picture.append(svg("rect", { class: group.colour, x, y: 0, width, height: HEIGHT }, svg("title", {}, `${group.name}: ${size(group.bytes)}`)));
    x += width;
  }
  if (limit) picture.append(svg("line", { class: "memory-limit", x1: (1000 * limit) / full, x2: (1000 * limit) / full, y1: 0, y2: HEIGHT }, svg("title", {}, t("a device has %(size)s", { size: size(limit) }))));
  return picture;
}

/** The group of a component, for people. @param {string} component */
export function componentName(component) {
  return GROUPS.find((group) => group.parts.includes(component))?.name() ?? component;
}

/** The groups that a phase has, with their bytes. @param {Phase} phase */
function grouped(phase) {
  return GROUPS.map((group) => ({ name: group.name(), colour: group.colour, bytes: group.parts.reduce((sum, part) => sum + (phase.components[part] || 0), 0) })).filter((group) => group.bytes > 0);
}
