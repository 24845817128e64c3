/** How a spec differs from its parent's, field by field. */

import { h } from "../dom.js";
import { t } from "../i18n.js";

/** @typedef {{path: string, values: [unknown, unknown]}} Row */

const LONGEST = 300; // characters of a value

/**
 * @param {Element | null} box null where the run has no parent
 * @param {Row[]} rows @param {number} more that are not among the rows
 */
export function showDifferences(box, rows, more) {
  const count = document.getElementById("difference-count");
  if (count) count.textContent = rows.length ? String(rows.length + more) : "";
  if (!box) return;
  if (!rows.length) {
    box.replaceChildren(h("p", { class: "card-body muted" }, t("Nothing yet: what you change shows here, field by field.")));
    return;
  }
  const head = h("thead", {}, h("tr", {}, h("th", {}, t("Field")), h("th", {}, t("Parent")), h("th", {}, t("This run"))));
  const body = h("tbody", {}, ...rows.map(({ path, values }) => h("tr", {}, h("td", {}, h("code", {}, path)), cell(values[0], "removed"), cell(values[1], "added"))));
  box.replaceChildren(h("table", { class: "table table-dense" }, head, body));
  if (more) box.append(h("p", { class: "card-body muted" }, t("and %(n)s more", { n: more })));
}

/** @param {unknown} value @param {string} side */
function cell(value, side) {
  if (value === null || value === undefined) return h("td", {}, h("span", { class: "none" }, t("not set")));
  const text = JSON.stringify(value);
  return h("td", {}, h("code", { class: `change ${side}` }, text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text));
}
