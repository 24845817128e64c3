/** Which algorithms fit the devices, what breaks, what would help, and which to take. */

import { h } from "../dom.js";
import { duration, size } from "../format.js";
import { t } from "../i18n.js";
import { componentName, memoryBars } from "./memory_bars.js";
import { changes, phaseName, reason } from "./words.js";

/** @typedef {{changes: string[], devices: number, bytes: number, time: {seconds: number} | null}} Fix */
/**
 * @typedef {{
 *   algorithm: string, fits: boolean, bytes: number, peak: string, phases: import("./memory_bars.js").Phase[],
 *   time: {seconds: number} | null,
 *   broken: {phase: string, component: string, size: number, over: number} | null, fixes: Fix[],
 * }} Verdict
 */
/** @typedef {{devices: string, limit: number, suggested: string | null, reason: string, verdicts: Verdict[]}} Advice */

/** @param {Advice} advice @returns {HTMLElement} */
export function adviceOn(advice) {
  const chosen = advice.verdicts.find((one) => one.algorithm === advice.suggested);
  const words = [h("strong", {}, chosen ? t("Suggested: %(name)s.", { name: chosen.algorithm }) : t("Suggested: none.")), " ", reason(advice.reason)];
  if (chosen && !chosen.fits) words.push(" ", helped(chosen.fixes[0]));
  return h(
    "div",
    { class: "advice" },
    h("h3", { class: "small" }, t("What fits %(devices)s", { devices: advice.devices })),
    h("p", { class: "small" }, ...words),
    chosen ? memoryBars(t("A device in %(name)s, as asked; the line is what it has", { name: chosen.algorithm }), chosen.phases, advice.limit) : null,
    h("table", { class: "table small" }, h("thead", {}, h("tr", {}, h("th", {}, t("algorithm")), h("th", { class: "number" }, t("peak")), h("th", { class: "number" }, t("a step, about")))), h("tbody", {}, ...advice.verdicts.flatMap(rows))),
    h("p", { class: "hint" }, t("Where only the form of tool calls is wrong, DPO repairs it; where experts of several domains are to be one model, distil them (OPD).")),
  );
}

/** @param {Verdict} verdict */
function rows(verdict) {
  const state = verdict.fits && verdict.time ? duration(verdict.time.seconds) : h("span", { class: "badge badge-bad" }, t("too large"));
  const found = [h("tr", {}, h("td", {}, verdict.algorithm), h("td", { class: "number", title: phaseName(verdict.peak) }, size(verdict.bytes)), h("td", { class: "number" }, state))];
  if (verdict.broken) found.push(h("tr", {}, h("td", { class: "small muted", colspan: 3 }, breaks(verdict.broken), " ", verdict.fixes.length ? helped(verdict.fixes[0]) : t("Nothing that is known here would help."))));
  return found;
}

/** @param {NonNullable<Verdict["broken"]>} broken */
function breaks(broken) {
  const over = size(broken.over);
  if (broken.phase === "host") return t("%(over)s too much for the RAM of a node.", { over });
  return t("%(over)s too much, most of it %(component)s.", { over, component: componentName(broken.component) });
}

/** @param {Fix} fix */
function helped(fix) {
  return t("It fits with %(change)s: %(size)s.", { change: changes(fix.changes, fix.devices), size: size(fix.bytes) });
}
