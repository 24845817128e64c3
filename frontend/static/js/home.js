/** Home: cards refresh when a run changes; the device strip is live. */

import { one, pageData } from "./dom.js";
import { subscribe } from "./live.js";
import { drawNodes } from "./nodes.js";

const active = /** @type {HTMLElement} */ (one("#active"));
let waiting = 0;

function refresh() {
  clearTimeout(waiting);
  waiting = window.setTimeout(() => /** @type {any} */ (window).htmx?.trigger(active, "refresh"), 700);
}

document.addEventListener("runschanged", refresh);
subscribe("cluster", 0, (message) => {
  if (message.kind === "devices") drawNodes(/** @type {HTMLElement} */ (one("#devices")), message.nodes, "strip");
});
// While runs are at work their numbers move without a change of state.
setInterval(() => {
  if (document.visibilityState === "visible" && Object.keys(pageData("run-cursors") || {}).length) refresh();
}, 10_000);
