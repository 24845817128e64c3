/** What scrolls can be scrolled with keys: it takes the focus while it is too wide or too high. */

import { all } from "./dom.js";

/** @param {HTMLElement} box */
function mark(box) {
  if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
  else box.removeAttribute("tabindex");
}

function update() {
  for (const box of all(".table-wrap, pre.code")) mark(box);
}

const resized = new ResizeObserver((entries) => {
  for (const entry of entries) mark(/** @type {HTMLElement} */ (entry.target));
});

/** Look after a box that comes and goes while the page stays. @param {HTMLElement} box */
export function scrollable(box) {
  resized.observe(box);
  return box;
}

export function startScrolling() {
  new ResizeObserver(update).observe(document.body);
  document.body.addEventListener("htmx:afterSettle", update);
}
