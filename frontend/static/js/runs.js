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

/** A run changed: the same page of the table again, once a moment, and not while rows are selected. */
function refresh() {
  clearTimeout(waiting);
  waiting = window.setTimeout(() => {
    if (one("input[data-select]:checked") || one("#runs-table :focus")) return refresh();
    const address = location.pathname + location.search;
    /** @type {any} */ (window).htmx?.ajax("GET", address, { target: "#runs-table", swap: "innerHTML" });
  }, 1000);
}

subscribe(`project.${table.dataset.project}`, 0, (message) => {
  if (message.kind === "state") refresh();
});
