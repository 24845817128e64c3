/** Keyboard: `g` and a letter goes to a page, `/` searches, `j` and `k` walk rows, `?` lists them all. */

import { all, one } from "./dom.js";

const PLACES = /** @type {Record<string, string>} */ ({
  h: "home",
  e: "experiments",
  r: "runs",
  l: "launch",
  m: "compare",
  v: "review",
  i: "inbox",
  s: "rewards",
  d: "datasets",
  c: "cluster",
  j: "jobs",
  o: "storage",
  t: "team",
});

let waiting = 0;

/** @param {KeyboardEvent} event */
function press(event) {
  const target = /** @type {HTMLElement} */ (event.target);
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (target.isContentEditable || target.matches("input:not([type=checkbox]):not([type=radio]), textarea, select")) {
    if (event.key === "Escape") target.blur();
    return;
  }
  if (one("dialog[open]")) return;
  if (waiting && performance.now() - waiting < 1500) {
    waiting = 0;
    const link = /** @type {HTMLAnchorElement|null} */ (one(`.nav a[data-place="${PLACES[event.key]}"]`));
    if (link) {
      event.preventDefault();
      link.click();
    }
    return;
  }
  waiting = 0;
  const act = ACTIONS[event.key];
  if (act && act()) event.preventDefault();
}

/** Each returns whether it did something. @type {Record<string, () => boolean>} */
const ACTIONS = {
  g: () => {
    waiting = performance.now();
    return true;
  },
  "/": () => {
    const field = /** @type {HTMLInputElement|null} */ (one("[data-search]"));
    field?.focus();
    field?.select();
    return Boolean(field);
  },
  "?": () => {
    /** @type {HTMLDialogElement|null} */ (one("#help"))?.showModal();
    return true;
  },
  j: () => walk(1),
  k: () => walk(-1),
  x: () => {
    const box = /** @type {HTMLInputElement|null} */ (row()?.querySelector("input[type=checkbox]") ?? null);
    box?.click();
    return Boolean(box);
  },
  "[": () => tab(-1),
  "]": () => tab(1),
};

/** @returns {HTMLElement | null} */
function row() {
  return /** @type {HTMLElement|null} */ (document.activeElement?.closest("tr[data-row]") ?? null);
}

/** @param {number} by */
function walk(by) {
  const rows = all("tr[data-row]");
  if (!rows.length) return false;
  const at = rows.findIndex((r) => r === row());
  const next = rows[at < 0 ? 0 : Math.min(Math.max(at + by, 0), rows.length - 1)];
  /** @type {HTMLElement|null} */ (next.querySelector("a"))?.focus();
  next.scrollIntoView({ block: "nearest" });
  return true;
}

/** @param {number} by */
function tab(by) {
  const tabs = /** @type {HTMLAnchorElement[]} */ (all(".tabs a"));
  const at = tabs.findIndex((a) => a.getAttribute("aria-current") === "page");
  const next = tabs[at + by];
  next?.click();
  return Boolean(next);
}

/** Keys of one page; they win over those of every page. @param {Record<string, () => boolean>} actions */
export function addKeys(actions) {
  Object.assign(ACTIONS, actions);
}

export function startKeyboard() {
  document.addEventListener("keydown", press);
}
