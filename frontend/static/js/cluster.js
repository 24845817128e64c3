/** Cluster: the newest sample of each node, live. */

import { one, pageData } from "./dom.js";
import { subscribe } from "./live.js";
import { drawNodes } from "./nodes.js";

/** @type {Map<string, import("./nodes.js").Sample>} */
const nodes = new Map();
const box = /** @type {HTMLElement} */ (one("#nodes"));

/** @param {import("./nodes.js").Sample[]} samples */
function draw(samples) {
  for (const sample of samples) nodes.set(sample.node, sample);
  drawNodes(box, [...nodes.values()].sort((a, b) => a.node.localeCompare(b.node)), "cards");
}

draw(pageData("device-data") || []);
subscribe("cluster", 0, (message) => {
  if (message.kind === "devices") draw(message.nodes);
});
