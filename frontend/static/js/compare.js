/** Compare: one panel a metric, one curve a run, the run's colour as everywhere. */

import { chartBar } from "./charts/bar.js";
import { Panel, panelCard, redrawAll } from "./charts/panel.js";
import { Store, pointsAfter } from "./charts/store.js";
import { unitOf } from "./charts/units.js";
import { one, pageData } from "./dom.js";
import { subscribe } from "./live.js";

const data = pageData("chart-data");
const store = new Store(data);
const view = chartBar(redrawAll);
const box = /** @type {HTMLElement} */ (one("#panels"));

for (const panel of data.panels) {
  const info = panel.unit ? panel : { ...panel, ...unitOf(panel.id) };
  const card = panelCard(info);
  box.append(card);
  new Panel(card, info, store, view);
}

for (const run of data.runs) {
  if (!run.active) continue;
  subscribe(`run.${run.id}`, run.cursor, (message, after) => {
    const apply = (/** @type {number} */ upto, /** @type {any[]} */ series) => store.apply(run.id, upto, series);
    if (message.kind === "series") apply(message.cursor, message.series);
    if (message.kind === "clock") store.addClocks(run.id, message.rows);
    return message.kind === "fetch" ? pointsAfter(run.id, after, apply) : undefined;
  });
}
