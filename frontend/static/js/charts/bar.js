/** The bar above the charts: horizontal axis, smoothing, logarithm. Its state is in the URL. */

import { h, one } from "../dom.js";
import { t } from "../i18n.js";
import { AXES, OWN_AXIS, SMOOTHINGS, axisTitle } from "./axes.js";

/**
 * @param {() => void} changed
 * @param {boolean} [grouped] the curves are means of groups: on the axis of each metric, with a band of their own
 * @returns {import("./panel.js").View}
 */
export function chartBar(changed, grouped = false) {
  const given = new URLSearchParams(location.search);
  const view = {
    axis: grouped ? OWN_AXIS : AXES.includes(given.get("x") || "") ? String(given.get("x")) : "trainer_step",
    smoothing: SMOOTHINGS.includes(Number(given.get("smooth"))) ? Number(given.get("smooth")) : 0,
    log: given.get("log") === "1",
  };
  const bar = one("[data-chart-bar]");
  if (!bar) return view;

  const update = () => {
    const query = new URLSearchParams(location.search);
    if (!grouped) set(query, "x", view.axis, "trainer_step");
    set(query, "smooth", String(view.smoothing), "0");
    set(query, "log", view.log ? "1" : "0", "0");
    history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
    changed();
  };
  const axis = select(t("Axis"), AXES.map((name) => [name, axisTitle(name)]), view.axis, (value) => {
    view.axis = value;
    update();
  });
  const names = [t("no smoothing"), t("light"), t("medium"), t("strong")];
  const smoothing = select(t("Smoothing"), SMOOTHINGS.map((value, i) => [String(value), names[i]]), String(view.smoothing), (value) => {
    view.smoothing = Number(value);
    update();
  });
  const log = h("input", { type: "checkbox", checked: view.log, onchange: (/** @type {Event} */ event) => {
    view.log = /** @type {HTMLInputElement} */ (event.target).checked;
    update();
  } });
  const parts = [smoothing, h("label", { class: "small muted" }, log, " ", t("logarithmic"))];
  bar.append(...(grouped ? parts : [axis, ...parts]));
  if (!grouped) bar.append(h("span", { class: "hint" }, t("Band: minimum to maximum, or 95% interval. Drag to zoom, double-click to reset.")));
  return view;
}

/** @param {URLSearchParams} query @param {string} name @param {string} value @param {string} usual */
function set(query, name, value, usual) {
  if (value === usual) query.delete(name);
  else query.set(name, value);
}

/**
 * @param {string} label
 * @param {string[][]} options
 * @param {string} chosen
 * @param {(value: string) => void} changed
 */
function select(label, options, chosen, changed) {
  const field = h("select", { class: "select", onchange: (/** @type {Event} */ event) => changed(/** @type {HTMLSelectElement} */ (event.target).value) });
  for (const [value, text] of options) field.append(h("option", { value, selected: value === chosen }, text));
  return h("label", { class: "small muted" }, `${label} `, field);
}
