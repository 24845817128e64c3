/** Overview: the curated panels of one run, live. */

import { chartBar } from "../charts/bar.js";
import { Panel, redrawAll } from "../charts/panel.js";
import { Store } from "../charts/store.js";
import { one, pageData } from "../dom.js";
import { liveStore } from "./series.js";

const data = pageData("chart-data");
const store = new Store(data);
const view = chartBar(redrawAll);

for (const info of data.panels) {
  const card = /** @type {HTMLElement | null} */ (one(`[data-panel="${info.id}"]`));
  if (card) new Panel(card, info, store, view);
}
liveStore(store, data.runs[0]);
