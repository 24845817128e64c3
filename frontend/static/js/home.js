/** Home: cards refresh when a run changes; a notification when one ends; the device strip is live. */

import { one, pageData } from "./dom.js";
import { t } from "./i18n.js";
import { subscribe } from "./live.js";
import { drawNodes } from "./nodes.js";
import { stateName } from "./states.js";

const active = /** @type {HTMLElement} */ (one("#active"));
const notify = /** @type {HTMLButtonElement | null} */ (one("[data-notify]"));
const ENDED = ["succeeded", "stopped", "failed", "interrupted", "lost"];
/** @type {Map<string, string>} */
const states = new Map();
let waiting = 0;
let first = true;

function refresh() {
  clearTimeout(waiting);
  waiting = window.setTimeout(() => /** @type {any} */ (window).htmx?.trigger(active, "refresh"), 700);
}

/** @param {{id: string, name: string, state: string}[]} runs */
function changed(runs) {
  for (const run of runs) {
    const before = states.get(run.id);
    states.set(run.id, run.state);
    if (!first && before && before !== run.state && ENDED.includes(run.state)) announce(run);
  }
  first = false;
  refresh();
}

/** @param {{id: string, name: string, state: string}} run */
function announce(run) {
  if (!("Notification" in window) || Notification.permission !== "granted") return;
  const note = new Notification(t("%(name)s: %(state)s", { name: run.name, state: stateName(run.state) }), { tag: run.id });
  note.onclick = () => {
    window.focus();
    location.href = `/runs/${run.id}/`;
  };
}

if (notify && "Notification" in window && Notification.permission === "default") {
  notify.hidden = false;
  notify.addEventListener("click", async () => {
    await Notification.requestPermission();
    notify.hidden = true;
  });
}

subscribe(`project.${active.dataset.project}`, 0, (message) => {
  if (message.kind === "state") changed(message.runs);
});
subscribe("cluster", 0, (message) => {
  if (message.kind === "devices") drawNodes(/** @type {HTMLElement} */ (one("#devices")), message.nodes, "strip");
});
// While runs are at work their numbers move without a change of state.
setInterval(() => {
  if (document.visibilityState === "visible" && Object.keys(pageData("run-cursors") || {}).length) refresh();
}, 10_000);
