/** New sweep: one more row for a field that varies. */

import { all, one } from "./dom.js";

one("[data-add-field]")?.addEventListener("click", () => {
  const rows = all("[data-field]");
  const row = /** @type {HTMLElement} */ (rows[rows.length - 1].cloneNode(true));
  for (const input of /** @type {NodeListOf<HTMLInputElement>} */ (row.querySelectorAll("input"))) input.value = "";
  rows[rows.length - 1].after(row);
  row.querySelector("input")?.focus();
});
