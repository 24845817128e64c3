/** Runs: the column picker, and live states of the rows that are shown. */

import { all, one } from "./dom.js";
import { subscribe } from "./live.js";

const columns = /** @type {HTMLFormElement | null} */ (one("[data-columns]"));
columns?.addEventListener("change", () => {
  const chosen = /** @type {HTMLInputElement[]} */ (all("[data-column]", columns)).filter((box) => box.checked).map((box) => box.value);
  const query = new URLSearchParams(location.search);
  query.set("columns", chosen.join(","));
  query.delete("cursor");
  location.search = query.toString();
});

const table = /** @type {HTMLElement} */ (one("#runs-table"));
let waiting = 0;

/** The same page of the table again, once a moment, and not while rows are selected. */
function refresh() {
  clearTimeout(waiting);
  waiting = window.setTimeout(async () => {
    if (one("input[data-select]:checked") || one("#runs-table input:focus")) return refresh();
    const address = location.pathname + location.search;
    const focused = document.activeElement?.closest("tr")?.getAttribute("data-run");
    await /** @type {any} */ (window).htmx?.ajax("GET", address, { target: "#runs-table", swap: "innerHTML" });
    if (focused) /** @type {HTMLElement | null} */ (one(`tr[data-run="${focused}"] a`))?.focus();
  }, 1000);
}

/** Whether the table is behind: a run is new, or was in another state or at another step. @param {any[]} runs */
function differs(runs) {
  const firstPage = !new URLSearchParams(location.search).has("cursor");
  return runs.some((run) => {
    const row = /** @type {HTMLElement | null} */ (one(`tr[data-run="${run.id}"]`));
    return row ? row.dataset.state !== run.state || row.dataset.step !== String(run.step) : firstPage && !known.has(run.id);
  });
}

const known = new Set(all("tr[data-run]").map((row) => row.dataset.run));

subscribe(`project.${table.dataset.project}`, 0, (message) => {
  if (message.kind !== "state") return;
  if (differs(message.runs)) refresh();
  for (const run of message.runs) known.add(run.id);
});
