/** What scrolls can be scrolled with keys: it takes the focus while it is too wide or too high. */

import { all } from "./dom.js";

function update() {
  for (const box of all(".table-wrap, pre.code")) {
    if (box.scrollWidth > box.clientWidth || box.scrollHeight > box.clientHeight) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
}

export function startScrolling() {
  new ResizeObserver(update).observe(document.body);
  document.body.addEventListener("htmx:afterSettle", update);
}
