/** A large config as a tree: parts are closed at first, and what is closed is not drawn. */

import { api } from "../api.js";
import { h, one } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";

const AT_ONCE = 200; // entries of a part
const LONGEST = 2000; // characters of a value
const MOST_FOUND = 200;

const box = /** @type {HTMLElement} */ (one("#config-tree"));
const search = /** @type {HTMLInputElement} */ (one("#config-search"));
const run = /** @type {HTMLElement} */ (one("#run")).dataset.run;

/** @param {unknown} value @returns {value is Record<string, unknown> | unknown[]} */
function isPart(value) {
  return typeof value === "object" && value !== null && Object.keys(value).length > 0;
}

/** @param {string} name @param {unknown} value @returns {HTMLElement} */
function entry(name, value) {
  if (!isPart(value)) return leaf(name, value);
  const count = Object.keys(value).length;
  const summary = h("summary", {}, h("code", {}, name), h("span", { class: "faint small" }, t("%(n)s entries", { n: number(count) })));
  const part = /** @type {HTMLDetailsElement} */ (h("details", {}, summary));
  part.addEventListener("toggle", () => {
    if (part.open && part.children.length === 1) part.append(children(value));
  });
  return part;
}

/** @param {string} name @param {unknown} value */
function leaf(name, value) {
  const text = JSON.stringify(value) ?? "null";
  const shown = h("code", { class: "config-value" }, text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text);
  const row = h("div", { class: "config-leaf" }, h("code", { class: "muted" }, name), shown);
  if (text.length > LONGEST) {
    const more = h("button", { type: "button", class: "button button-quiet button-small" }, t("all of it"));
    more.addEventListener("click", () => {
      shown.textContent = text;
      more.remove();
    });
    row.append(more);
  }
  return row;
}

/** @param {Record<string, unknown> | unknown[]} value */
function children(value) {
  const entries = Object.entries(value);
  const list = h("div", { class: "config-part" });
  /** @param {number} from */
  function draw(from) {
    list.append(...entries.slice(from, from + AT_ONCE).map(([name, item]) => entry(name, item)));
    const left = entries.length - from - AT_ONCE;
    if (left <= 0) return;
    const more = h("button", { type: "button", class: "button button-small" }, t("%(n)s more", { n: number(left) }));
    more.addEventListener("click", () => {
      more.remove();
      draw(from + AT_ONCE);
    });
    list.append(more);
  }
  draw(0);
  return list;
}

/** @param {unknown} spec @param {string} text @returns {[string, unknown][]} */
function found(spec, text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  /** @type {[string, unknown][]} */
  const hits = [];
  /** @type {[string, unknown][]} */
  const waiting = [["", spec]];
  while (waiting.length && hits.length < MOST_FOUND) {
    const [path, value] = /** @type {[string, unknown]} */ (waiting.pop());
    if (isPart(value)) {
      for (const [name, item] of Object.entries(value).reverse()) waiting.push([path ? `${path}.${name}` : name, item]);
      continue;
    }
    const whole = `${path} ${JSON.stringify(value)}`.toLowerCase();
    if (words.every((word) => whole.includes(word))) hits.push([path, value]);
  }
  return hits;
}

async function start() {
  let spec;
  try {
    spec = (await api(`runs/${run}`)).spec;
  } catch (error) {
    box.replaceChildren(h("p", { class: "card-body error-text" }, /** @type {Error} */ (error).message));
    return;
  }
  box.replaceChildren(children(spec));
  search.addEventListener("input", () => {
    const text = search.value.trim();
    const hits = text ? found(spec, text) : [];
    if (!text) box.replaceChildren(children(spec));
    else if (!hits.length) box.replaceChildren(h("p", { class: "card-body muted" }, t("Nothing in it has these words.")));
    else box.replaceChildren(h("div", { class: "config-part" }, ...hits.map(([path, value]) => leaf(path, value))));
  });
}

start();
