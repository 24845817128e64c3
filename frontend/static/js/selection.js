/** Rows that can be selected: the bar with what can be done to them, and the box that takes all. */

import { all, one } from "./dom.js";
import { number } from "./format.js";

const MOST_COMPARED = 50;

/** The ids that are chosen; a box of a group holds those of its runs. @param {HTMLInputElement[]} boxes */
function idsOf(boxes) {
  return [...new Set(boxes.flatMap((box) => box.value.split(",")))];
}

function refresh() {
  const boxes = /** @type {HTMLInputElement[]} */ (all("input[data-select]"));
  const chosen = boxes.filter((box) => box.checked);
  for (const box of boxes) box.closest("tr")?.setAttribute("aria-selected", String(box.checked));
  const bar = one("[data-selection-bar]");
  if (!(bar instanceof HTMLElement)) return;
  bar.hidden = chosen.length === 0;
  const everything = /** @type {HTMLInputElement | null} */ (one("[data-all]"));
  const ids = idsOf(chosen);
  const count = one("[data-selection-count]", bar);
  const take = /** @type {HTMLElement | null} */ (one("[data-take-all]", bar));
  if (count) count.textContent = number(everything?.value ? Number(take?.dataset.takeAll) : ids.length);
  if (take) take.hidden = Boolean(everything?.value);
  const compare = /** @type {HTMLAnchorElement|null} */ (one("[data-compare]", bar));
  if (compare) {
    const group = compare.dataset.compareGroup;
    const first = chosen.filter((box) => "baseline" in box.dataset); // what others are measured against
    const ordered = idsOf([...first, ...chosen]);
    compare.href = `${compare.dataset.compare}?runs=${ordered.join(",")}${group ? `&group=${encodeURIComponent(group)}` : ""}`;
    compare.setAttribute("aria-disabled", String(ids.length < 2 || ids.length > MOST_COMPARED || Boolean(everything?.value)));
  }
}

/** Whether the filter's runs are meant, those of other pages too. @param {boolean} on */
function takeAll(on) {
  const everything = /** @type {HTMLInputElement | null} */ (one("[data-all]"));
  if (everything) everything.value = on ? "1" : "";
}

export function startSelection() {
  document.addEventListener("change", (event) => {
    const box = /** @type {HTMLInputElement} */ (event.target);
    if (!box.matches("[data-select], [data-select-all]")) return;
    takeAll(false);
    if (box.matches("[data-select-all]")) {
      for (const other of /** @type {HTMLInputElement[]} */ (all("input[data-select]"))) other.checked = box.checked;
    }
    refresh();
  });
  document.addEventListener("click", (event) => {
    const target = /** @type {Element} */ (event.target);
    if (target.closest('[data-compare][aria-disabled="true"]')) event.preventDefault();
    if (target.closest("[data-take-all]")) {
      takeAll(true);
      refresh();
    }
  });
  document.body.addEventListener("htmx:afterSettle", refresh);
  refresh();
}
