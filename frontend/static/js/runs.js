/** Runs: the pickers of columns and groups, and live states of the rows that are shown. */

import { all, one } from "./dom.js";
import { subscribe } from "./live.js";

const picker = /** @type {HTMLElement | null} */ (one("[data-columns]"));

/** Open the page anew with other parameters. @param {Record<string, string>} changes */
function go(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value) query.set(name, value);
    else query.delete(name);
  }
  for (const name of ["cursor", "open", "find"]) query.delete(name);
  location.search = query.toString();
}

picker?.addEventListener("change", (event) => {
  const box = /** @type {HTMLInputElement} */ (event.target);
  if (!box.matches("[data-column]")) return;
  const boxes = /** @type {HTMLInputElement[]} */ (all("[data-column]", picker));
  const chosen = new Set(boxes.filter((other) => other.checked).map((other) => other.value));
  // Those of the address keep their order; what is new comes last.
  const before = (new URLSearchParams(location.search).get("columns") || "").split(",").filter((name) => chosen.has(name));
  if (box.checked) chosen.add(box.value);
  else chosen.delete(box.value);
  go({ columns: [...new Set([...before, ...chosen])].filter((name) => chosen.has(name)).join(",") });
});

document.addEventListener("click", (event) => {
  const link = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest("[data-group]"));
  if (!link) return;
  event.preventDefault();
  go({ group: link.dataset.group || "", sort: "" });
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
