/** Rows that can be selected: the bar with what can be done to them, and the box that takes all. */

import { all, one } from "./dom.js";

function refresh() {
  const boxes = /** @type {HTMLInputElement[]} */ (all("input[data-select]"));
  const chosen = boxes.filter((box) => box.checked);
  for (const box of boxes) box.closest("tr")?.setAttribute("aria-selected", String(box.checked));
  const bar = one("[data-selection-bar]");
  if (!(bar instanceof HTMLElement)) return;
  bar.hidden = chosen.length === 0;
  const count = one("[data-selection-count]", bar);
  if (count) count.textContent = String(chosen.length);
  const compare = /** @type {HTMLAnchorElement|null} */ (one("[data-compare]", bar));
  if (compare) {
    compare.href = `${compare.dataset.compare}?runs=${chosen.map((box) => box.value).join(",")}`;
    compare.toggleAttribute("aria-disabled", chosen.length < 2);
    compare.setAttribute("aria-disabled", String(chosen.length < 2));
  }
}

export function startSelection() {
  document.addEventListener("change", (event) => {
    const box = /** @type {HTMLInputElement} */ (event.target);
    if (box.matches("[data-select-all]")) {
      for (const other of /** @type {HTMLInputElement[]} */ (all("input[data-select]"))) other.checked = box.checked;
    }
    if (box.matches("[data-select], [data-select-all]")) refresh();
  });
  document.addEventListener("click", (event) => {
    const link = /** @type {Element} */ (event.target).closest('[data-compare][aria-disabled="true"]');
    if (link) event.preventDefault();
  });
  document.body.addEventListener("htmx:afterSettle", refresh);
  refresh();
}
