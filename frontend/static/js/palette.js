/** Ctrl-K: every page, every action of this page, and what the project holds, by typing a part of it. */

import { api } from "./api.js";
import { all, h, one } from "./dom.js";
import { t } from "./i18n.js";

/** @typedef {{title: string, kind: string, detail?: string, go: () => void}} Entry */

const SHOWN = 12;
const WAIT_MS = 150;

const dialog = /** @type {HTMLDialogElement | null} */ (one("#palette"));
const input = /** @type {HTMLInputElement | null} */ (one("#palette-input"));
const list = /** @type {HTMLElement | null} */ (one("#palette-list"));
const said = /** @type {HTMLElement | null} */ (one("#palette-said"));
/** @type {Entry[]} */
let entries = [];
let chosen = 0;
let timer = 0;
/** @type {AbortController | null} */
let asking = null;

/** @returns {Entry[]} */
function local() {
  const places = /** @type {HTMLAnchorElement[]} */ (all(".nav a, .tabs a")).map((link) => ({
    title: words(link),
    kind: link.closest(".tabs") ? t("tab") : t("page"),
    go: () => link.click(),
  }));
  const actions = all(".page-head .actions :is(a, button)")
    .filter((node) => node.offsetParent !== null && !(/** @type {HTMLButtonElement} */ (node).disabled) && words(node))
    .map((node) => ({ title: words(node), kind: t("action"), go: () => node.click() }));
  return [...actions, ...places];
}

/** @param {HTMLElement} node */
function words(node) {
  return (node.textContent || "").replace(/\s+/g, " ").trim();
}

/** Letters of `query` in their order, the closer together the better; null: they are not all there.
 * @param {string} text @param {string} query */
export function fit(text, query) {
  const low = text.toLowerCase();
  const at = low.indexOf(query);
  if (at >= 0) return at === 0 || low[at - 1] === " " ? at / 100 : 1 + at / 100;
  let from = -1;
  let gaps = 0;
  for (const letter of query) {
    const next = low.indexOf(letter, from + 1);
    if (next < 0) return null;
    if (from >= 0) gaps += next - from - 1;
    from = next;
  }
  return 10 + gaps;
}

function search() {
  const query = (input?.value || "").trim();
  asking?.abort();
  clearTimeout(timer);
  const found = local()
    .map((entry) => ({ entry, rank: fit(entry.title, query.toLowerCase()) }))
    .filter((one) => one.rank !== null)
    .sort((a, b) => Number(a.rank) - Number(b.rank))
    .map((one) => one.entry);
  draw(found.slice(0, SHOWN));
  if (query.length > 1) timer = window.setTimeout(() => ask(query, found), WAIT_MS);
}

/** @param {string} query @param {Entry[]} before */
async function ask(query, before) {
  const project = document.body.dataset.project;
  if (!project) return;
  asking = new AbortController();
  const { signal } = asking;
  try {
    const found = await api(`search?${new URLSearchParams({ project, q: query })}`, { signal });
    const kinds = /** @type {Record<string, string>} */ ({
      run: t("run"),
      experiment: t("experiment"),
      dataset: t("dataset"),
      scheme: t("reward scheme"),
      queue: t("review queue"),
      trajectory: t("trajectory"),
    });
    const hits = found.items.map((/** @type {any} */ hit) => ({
      title: hit.name,
      kind: kinds[hit.kind],
      detail: hit.field === "name" ? "" : `${hit.before}${hit.match}${hit.after}`,
      go: () => location.assign(hit.url),
    }));
    const whole = { title: t("Search everything for “%(query)s”", { query }), kind: t("page"), go: () => location.assign(`/projects/${project}/search/?${new URLSearchParams({ q: query })}`) };
    draw([...before.slice(0, SHOWN / 2), ...hits, whole]);
  } catch (problem) {
    if (!signal.aborted && said) said.textContent = /** @type {Error} */ (problem).message;
  }
}

/** @param {Entry[]} found */
function draw(found) {
  entries = found;
  list?.replaceChildren(
    ...found.map((entry, index) =>
      h(
        "li",
        { id: `palette-${index}`, role: "option", class: "palette-item", "data-index": index },
        h("span", { class: "grow clip" }, entry.title, entry.detail ? h("span", { class: "small muted" }, ` ${entry.detail}`) : null),
        h("span", { class: "small faint" }, entry.kind),
      ),
    ),
  );
  if (said) said.textContent = found.length ? "" : t("Nothing is called that. Try fewer letters.");
  choose(0);
}

/** @param {number} index */
function choose(index) {
  if (!entries.length) {
    input?.removeAttribute("aria-activedescendant");
    return;
  }
  chosen = (index + entries.length) % entries.length;
  for (const node of list?.children || []) {
    const here = Number(/** @type {HTMLElement} */ (node).dataset.index) === chosen;
    node.setAttribute("aria-selected", String(here));
    if (here) node.scrollIntoView({ block: "nearest" });
  }
  input?.setAttribute("aria-activedescendant", `palette-${chosen}`);
}

/** @param {number} index */
function go(index) {
  const entry = entries[index];
  if (!entry) return;
  dialog?.close();
  entry.go();
}

/** @param {KeyboardEvent} event */
function press(event) {
  if (event.isComposing) return; // Enter ends the word of an input method
  const by = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (by) choose(chosen + by);
  else if (event.key === "Enter") go(chosen);
  else return;
  event.preventDefault();
}

export function openPalette() {
  if (!dialog || !input || one("dialog[open]")) return false;
  input.value = "";
  dialog.showModal();
  search();
  return true;
}

export function startPalette() {
  input?.addEventListener("input", search);
  input?.addEventListener("keydown", press);
  list?.addEventListener("click", (event) => {
    const item = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-index]"));
    if (item) go(Number(item.dataset.index));
  });
  dialog?.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.addEventListener("keydown", (event) => {
    if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey) || event.altKey || event.shiftKey) return;
    event.preventDefault();
    if (dialog?.open) dialog.close();
    else openPalette();
  });
}
