/** Live points of the page's run into its store. */

import { pointsAfter } from "../charts/store.js";
import { follow, on } from "./page.js";

/**
 * @param {import("../charts/store.js").Store} store
 * @param {{id: string, cursor: number}} run
 */
export function liveStore(store, run) {
  /** @param {number} upto @param {any[]} series */
  const apply = (upto, series) => store.apply(run.id, upto, series);
  on("series", (message) => apply(message.cursor, message.series));
  on("fetch", (_message, after) => pointsAfter(run.id, after, apply));
  on("clock", (message) => store.addClocks(run.id, message.rows));
  follow(run.cursor);
}
