/** Every tab of a run: one socket, whose messages go to the tab's modules; the header follows the state. */

import { all, one, toast } from "../dom.js";
import { t } from "../i18n.js";
import { subscribe } from "../live.js";
import { stateName } from "../states.js";

const root = /** @type {HTMLElement} */ (one("#run"));
export const runId = root.dataset.run || "";

/** @type {Map<string, ((message: any, after: number) => void | Promise<void>)[]>} */
const handlers = new Map();

/**
 * Be told of messages of a kind: series, fetch, pool, decision, log, trajectories, spans, clock.
 * @param {string} kind
 * @param {(message: any, after: number) => void | Promise<void>} handle
 */
export function on(kind, handle) {
  handlers.set(kind, [...(handlers.get(kind) || []), handle]);
}

/** @param {import("../live.js").Message} message @param {number} after */
async function receive(message, after) {
  if (message.kind === "state") stateChanged(message.run);
  for (const handle of handlers.get(message.kind) || []) await handle(message, after);
}

let refreshing = 0;
let shown = "";

/** Progress moves all the time and may wait; what people do or wait for is shown at once. @param {any} run */
function stateChanged(run) {
  const key = [run.state, run.wish, run.pause_rollouts, run.pause_training, run.name].join();
  refreshHeader(key === shown ? 3000 : 200);
  shown = key;
}

/** The header is the server's HTML, fetched again. @param {number} delay ms */
function refreshHeader(delay) {
  if (refreshing && delay > 1000) return;
  clearTimeout(refreshing);
  refreshing = window.setTimeout(async () => {
    refreshing = 0;
    if (one("dialog[open]") || one("#run-header :focus-visible")) return refreshHeader(3000);
    const response = await fetch(root.dataset.header || "", { headers: { "HX-Request": "true" } }).catch(() => null);
    if (!response?.ok || response.redirected) return;
    const before = one("#run-header header")?.getAttribute("data-state");
    const header = /** @type {HTMLElement} */ (one("#run-header"));
    const badge = one("#live");
    header.innerHTML = await response.text(); // our own template, which escapes
    if (badge && one("#live")?.getAttribute("data-live") === "wait") one("#live")?.replaceWith(badge);
    /** @type {any} */ (window).htmx?.process(header);
    document.body.dispatchEvent(new CustomEvent("htmx:afterSettle"));
    const after = one("#run-header header")?.getAttribute("data-state");
    if (after && after !== before) {
      root.dataset.state = after;
      toast(t("The run is now %(state)s.", { state: stateName(after) }), after === "failed" || after === "lost" ? "bad" : "good");
    }
  }, 400);
}

const ended = ["succeeded", "stopped", "failed", "interrupted", "lost"].includes(root.dataset.state || "");

/** Start following; called by the tab once its handlers are in place. @param {number} cursor */
export function follow(cursor) {
  if (!ended) subscribe(`run.${runId}`, cursor, receive);
}

if (!all("[data-panel], #panel-groups, #pool, #lanes, #log").length) follow(Number(root.dataset.cursor));
