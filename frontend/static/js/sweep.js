/** One sweep: its page is fetched again every few seconds while it goes on. */

import { one } from "./dom.js";

const EVERY_MS = 5000;

/** Not while somebody is on a link or button of it: the focus would be lost. */
async function refresh() {
  const busy = document.hidden || one("#sweep :focus");
  if (!busy) {
    const address = location.pathname + location.search;
    await /** @type {any} */ (window).htmx?.ajax("GET", address, { target: "#sweep", swap: "innerHTML" });
  }
  if (one("#sweep [data-going]")) setTimeout(refresh, EVERY_MS);
}

if (one("#sweep [data-going]")) setTimeout(refresh, EVERY_MS);
