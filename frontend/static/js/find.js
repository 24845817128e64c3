/** Choices among more rows than a page holds: what is typed asks the API, and its answer refills them. */

import { api } from "./api.js";
import { h, one, toast } from "./dom.js";
import { number } from "./format.js";
import { t } from "./i18n.js";

/**
 * @typedef {{id: string, name: string, number: number, note: string, rows: number, kind: string,
 *   scheme?: {name: string}, dataset?: {name: string, kind: string}}} Row of a list of the API
 */

const WAIT_MS = 250;
let timer = 0;
/** @type {AbortController | null} */
let asking = null;

/** @param {Row} row */
function labelOf(row) {
  if (row.scheme) return t("%(name)s version %(n)s", { name: row.scheme.name, n: row.number });
  if (row.dataset) return t("%(name)s version %(n)s, %(rows)s rows", { name: row.dataset.name, n: row.number, rows: number(row.rows) });
  return `${row.name} (${row.kind})`;
}

/** @param {Row} row */
export function optionOf(row) {
  return h("option", { value: row.id, title: row.note || null }, labelOf(row));
}

/** A field that does so. @param {string} path of the API, with a query @param {string} fills selector @param {string} label */
export function finder(path, fills, label) {
  const field = h("input", { class: "input medium", type: "search", autocomplete: "off", spellcheck: "false", "data-find": path, "data-fills": fills, placeholder: t("Name or number"), "aria-label": label });
  return h("div", { class: "row" }, field, h("span", { class: "small muted", role: "status", "data-found": true }));
}

/** @param {Event} event */
function typed(event) {
  const field = /** @type {HTMLInputElement} */ (event.target);
  if (field.dataset?.find === undefined) return;
  clearTimeout(timer);
  timer = window.setTimeout(() => ask(field), WAIT_MS);
}

/** At once, and no more: in a form, Enter would send what is chosen in it by now. @param {KeyboardEvent} event */
function entered(event) {
  const field = /** @type {HTMLInputElement} */ (event.target);
  if (event.key !== "Enter" || event.isComposing || field.dataset?.find === undefined) return;
  event.preventDefault();
  clearTimeout(timer);
  ask(field);
}

/** @param {HTMLInputElement} field */
async function ask(field) {
  const { find = "", fills = "" } = field.dataset;
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  /** @type {{items: Row[], next_cursor: string | null}} */
  let page;
  try {
    page = await api(`${find}&q=${encodeURIComponent(field.value.trim())}`, { signal });
  } catch (error) {
    if (!signal.aborted) toast(/** @type {Error} */ (error).message, "bad");
    return;
  }
  const box = one(fills);
  if (box instanceof HTMLSelectElement) refill(box, page.items);
  else box?.replaceChildren(...page.items.map((row) => h("option", { value: row.name })));
  const said = field.parentElement && one("[data-found]", field.parentElement);
  if (said) said.textContent = page.next_cursor ? t("more than %(n)s", { n: page.items.length }) : t("%(n)s found", { n: page.items.length });
}

/** What is chosen, and what is no row of the list, stay. @param {HTMLSelectElement} select @param {Row[]} rows */
function refill(select, rows) {
  const kept = [...select.options].filter((option) => !option.value || option.selected || "always" in option.dataset);
  const held = new Set(kept.map((option) => option.value));
  select.replaceChildren(...kept, ...rows.filter((row) => !held.has(row.id)).map(optionOf));
}

export function startFinding() {
  document.addEventListener("input", typed);
  document.addEventListener("keydown", entered);
}
