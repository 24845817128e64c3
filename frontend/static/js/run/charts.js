/** Charts: every metric of the run in groups by the first part of its name; search narrows. */

import { chartBar } from "../charts/bar.js";
import { Panel, panelCard, redrawAll } from "../charts/panel.js";
import { Store } from "../charts/store.js";
import { unitOf } from "../charts/units.js";
import { h, one, pageData } from "../dom.js";
import { t } from "../i18n.js";
import { liveStore } from "./series.js";

const MOST = 120; // panels made at once; a search narrows thousands of metrics

const data = pageData("chart-data");
const store = new Store(data);
const view = chartBar(redrawAll);
const groups = /** @type {HTMLElement} */ (one("#panel-groups"));
const field = /** @type {HTMLInputElement} */ (one("#metric-search"));
const count = /** @type {HTMLElement} */ (one("#metric-count"));
const curated = new Map(data.panels.flatMap((/** @type {any} */ panel) => panel.metrics.map((/** @type {string} */ name) => [name, panel])));

/** @type {Map<string, Panel>} */
let panels = new Map();

/** The panels of the metrics that match; those already made are kept. */
function refresh() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const names = store.names().filter((name) => words.every((word) => name.toLowerCase().includes(word)));
  const shown = names.slice(0, MOST);
  count.textContent = t("%(n)s metrics", { n: names.length }) + (names.length > MOST ? t(", the first %(most)s shown: narrow the search", { most: MOST }) : "");
  const kept = new Map();
  const sections = new Map();
  for (const name of shown) {
    const group = name.includes("/") ? name.slice(0, name.indexOf("/")) : t("other");
    if (!sections.has(group)) sections.set(group, h("div", { class: "panels" }));
    let panel = panels.get(name);
    if (!panel) {
      const known = curated.get(name);
      const look = known && known.scale === 1 ? { unit: known.unit, share: known.share } : unitOf(name);
      const info = { id: name, title: name, metrics: [name], ...look };
      panel = new Panel(panelCard(info), info, store, view);
    }
    kept.set(name, panel);
    sections.get(group).append(panel.card);
  }
  for (const [name, panel] of panels) if (!kept.has(name)) panel.destroy();
  panels = kept;
  groups.replaceChildren(
    ...(shown.length
      ? [...sections].map(([group, box]) => h("details", { open: true, class: "panel-group" }, h("summary", {}, h("h2", {}, group), h("span", { class: "faint small" }, box.children.length)), box))
      : [h("div", { class: "card" }, h("div", { class: "empty" }, h("h3", {}, store.names().length ? t("No metric matches") : t("No metric yet")), h("p", {}, store.names().length ? t("Search for a part of the name.") : t("They appear here as soon as the run reports its first numbers."))))]),
  );
}

field.addEventListener("input", () => {
  const query = new URLSearchParams(location.search);
  if (field.value) query.set("q", field.value);
  else query.delete("q");
  history.replaceState(null, "", query.size ? `?${query}` : location.pathname);
  refresh();
});
field.addEventListener("change", (event) => event.stopPropagation());
let waiting = 0;
store.newSeries.add(() => {
  clearTimeout(waiting);
  waiting = window.setTimeout(refresh, 300);
});
refresh();
liveStore(store, data.runs[0]);
