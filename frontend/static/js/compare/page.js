/** Compare: curves of runs or of groups; its other parts load when they come into view. */

import { chartBar } from "../charts/bar.js";
import { Panel, redrawAll } from "../charts/panel.js";
import { pointsAfter } from "../charts/store.js";
import { unitOf } from "../charts/units.js";
import { all, h, one, pageData } from "../dom.js";
import { t } from "../i18n.js";
import { subscribe } from "../live.js";
import { awaited, shown } from "../ready.js";
import { startParallel } from "./parallel.js";
import { GroupsStore, RunsStore } from "./stores.js";

const MOST_BANDS = 6; // runs that are drawn with the bands of their buckets

const page = /** @type {HTMLElement} */ (one("#compare"));

function startCharts() {
  const data = pageData("chart-data");
  if (!data) return;
  for (const run of data.runs) data.series[run.id] ??= [];
  const grouped = data.group !== undefined;
  const bare = data.runs.length > MOST_BANDS && !grouped;
  const store = grouped ? new GroupsStore(data) : new RunsStore(data, bare);
  const view = chartBar(redrawAll, grouped);
  view.bare = bare;
  const box = /** @type {HTMLElement} */ (one("#panels"));
  if (!data.panels.length) box.append(h("p", { class: "muted" }, t("These runs have measured nothing yet.")));
  for (const panel of data.panels) {
    const info = panel.unit ? panel : { ...panel, ...unitOf(panel.id) };
    new Panel(/** @type {HTMLElement} */ (one(`[data-panel="${CSS.escape(panel.id)}"]`, box)), info, store, view);
  }
  for (const run of data.runs) if (run.active) follow(store, run);
}

/** @param {import("../charts/store.js").Store} store @param {any} run */
function follow(store, run) {
  subscribe(`run.${run.id}`, run.cursor, (message, after) => {
    const apply = (/** @type {number} */ upto, /** @type {any[]} */ series) => store.apply(run.id, upto, series);
    if (message.kind === "series") apply(message.cursor, message.series);
    if (message.kind === "clock") store.addClocks(run.id, message.rows);
    return message.kind === "fetch" ? pointsAfter(run.id, after, apply) : undefined;
  });
}

/** Fill a part with what the server makes of the address. @param {HTMLElement} part @param {string} name */
async function load(part, name) {
  const query = new URLSearchParams(location.search);
  query.set("part", name);
  try {
    const answer = await fetch(`${location.pathname}?${query}`, { headers: { "HX-Request": "true" }, credentials: "same-origin" });
    if (!answer.ok) throw new Error(t("The server answered %(status)s. Reload the page, or try again in a moment.", { status: answer.status }));
    const parsed = new DOMParser().parseFromString(await answer.text(), "text/html");
    part.replaceChildren(...parsed.body.childNodes);
    if (name === "parallel") startParallel(part);
  } catch (error) {
    const again = h("button", { class: "button", type: "button", onclick: () => load(part, name) }, t("Try again"));
    one(".card-body", part)?.replaceChildren(h("p", { class: "notice notice-bad", role: "alert" }, /** @type {Error} */ (error).message), again);
  }
}

const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      const part = /** @type {HTMLElement} */ (entry.target);
      watcher.unobserve(part);
      awaited(part);
      load(part, part.dataset.part || "").finally(() => shown(part));
    }
  },
  { rootMargin: "100px" },
);

/** A part's own form: its fields go into the address, and only the part is loaded again. @param {SubmitEvent} event */
function sendPart(event) {
  const form = /** @type {HTMLFormElement} */ (event.target);
  const name = form.dataset.partForm;
  if (!name) return;
  event.preventDefault();
  const query = new URLSearchParams(location.search);
  for (const field of /** @type {NodeListOf<HTMLInputElement | HTMLSelectElement>} */ (form.querySelectorAll("select, input:not([type=hidden])"))) {
    if (field.value) query.set(field.name, field.value);
    else query.delete(field.name);
  }
  history.replaceState(null, "", `?${query}`);
  const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.getAttribute("name");
  const part = /** @type {HTMLElement} */ (one(`#part-${name}`));
  load(part, name).then(() => /** @type {HTMLElement | null} */ (one(`[name="${focused}"]:not([type=hidden])`, part))?.focus());
}

page.addEventListener("submit", sendPart);
document.addEventListener("click", (event) => {
  const button = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-add-metric]"));
  if (!button) return;
  const query = new URLSearchParams(location.search);
  const picked = (query.get("metrics") || "").split(",").filter(Boolean);
  query.set("metrics", [...new Set([button.dataset.addMetric, ...picked])].join(","));
  location.search = query.toString();
});

startCharts();
for (const part of all("[data-part]", page)) watcher.observe(part);
startParallel(page);
