/** Tree: how much of each batch was shared over time, and one batch's prefix forest as an icicle. */

import { api } from "../api.js";
import { chartBar } from "../charts/bar.js";
import { seriesColour } from "../charts/palette.js";
import { Panel, redrawAll } from "../charts/panel.js";
import { Store } from "../charts/store.js";
import { h, one, pageData, svg, toast } from "../dom.js";
import { absolute, number } from "../format.js";
import { t } from "../i18n.js";
import { on, runId } from "./page.js";
import { liveStore } from "./series.js";

/**
 * @typedef {{id: number, at: number, attempt: number, step: number, parents: number[], tokens: number[], samples: number[], label: number[], labels: string[], nodes: number, total_tokens: number, sample_tokens: number}} Snapshot
 */

const charts = pageData("chart-data");
const store = new Store(charts);
const view = chartBar(redrawAll);
for (const info of charts.panels) {
  const card = /** @type {HTMLElement | null} */ (one(`[data-panel="${info.id}"]`));
  if (card) new Panel(card, info, store, view);
}

/** @type {Snapshot | null} */
let newest = pageData("tree-data")?.newest ?? null;
let shown = newest;
const box = one("#tree-icicle");
const readout = one("#tree-readout");
const earlier = /** @type {HTMLButtonElement | null} */ (one("#tree-earlier"));
const latest = /** @type {HTMLButtonElement | null} */ (one("#tree-newest"));

/**
 * Where each node stands: x and width in samples, y and height in tokens.
 * @param {Snapshot} tree
 */
function layout(tree) {
  /** @type {{x: number, width: number, y: number, height: number}[]} */
  const places = [];
  /** @type {number[]} the next free column below each node */
  const free = [];
  let width = 0;
  let depth = 0;
  tree.parents.forEach((parent, node) => {
    const above = places[parent];
    const place = { x: above ? free[parent] : width, width: tree.samples[node], y: above ? above.y + above.height : 0, height: tree.tokens[node] };
    if (above) free[parent] += place.width;
    else width += place.width;
    free[node] = place.x;
    depth = Math.max(depth, place.y + place.height);
    places.push(place);
  });
  return { places, width, depth };
}

/** @param {Snapshot} tree @param {number} node */
function words(tree, node) {
  const label = tree.label[node] < 0 ? t("several tasks") : tree.labels[tree.label[node]];
  const counts = { tokens: number(tree.tokens[node]), samples: number(tree.samples[node]) };
  return `${label} · ${tree.samples[node] > 1 ? t("%(tokens)s tokens, computed once for %(samples)s samples", counts) : t("%(tokens)s tokens of one sample", counts)}`;
}

function draw() {
  if (!shown || !box) return;
  const tree = shown;
  /** @type {HTMLElement} */ (one("#tree-shown")).hidden = false;
  /** @type {HTMLElement} */ (one("#tree-empty")).hidden = true;
  const { places, width, depth } = layout(tree);
  const about = { samples: number(width), tokens: number(tree.sample_tokens), computed: number(tree.total_tokens), ratio: number(tree.sample_tokens / tree.total_tokens, 3) };
  const sentence = t("%(samples)s samples of %(tokens)s tokens, %(computed)s computed: %(ratio)s times fewer", about);
  const picture = svg("svg", { class: "icicle", viewBox: `0 0 ${width} ${depth}`, preserveAspectRatio: "none", role: "group", "aria-label": sentence });
  places.forEach((place, node) => {
    const block = svg("rect", { ...place, tabindex: 0, role: "img", "aria-label": words(tree, node) });
    if (tree.label[node] < 0) block.setAttribute("class", "mixed");
    else block.setAttribute("fill", seriesColour(tree.label[node]));
    const tell = () => readout?.replaceChildren(words(tree, node));
    block.addEventListener("pointerenter", tell);
    block.addEventListener("focus", tell);
    picture.append(block);
  });
  box.replaceChildren(picture);
  readout?.replaceChildren(sentence);
  one("#tree-about")?.replaceChildren(t("trainer step %(n)s", { n: number(tree.step) }), " · ", h("time", {}, absolute(tree.at)));
  one("#tree-depth")?.replaceChildren(t("The longest has %(n)s tokens.", { n: number(depth) }));
  const left = tree.nodes - places.length;
  one("#tree-left-out")?.replaceChildren(left ? t("The smallest %(n)s of %(all)s blocks are left out.", { n: number(left), all: number(tree.nodes) }) : "");
  if (latest) latest.disabled = shown === newest;
}

earlier?.addEventListener("click", async () => {
  if (!shown) return;
  const found = await api(`runs/${runId}/trees?before=${shown.id}`).catch((error) => toast(error.message, "bad"));
  if (!found) return;
  if (found.items.length) shown = found.items[0];
  else earlier.disabled = true;
  draw();
});
latest?.addEventListener("click", () => {
  shown = newest;
  if (earlier) earlier.disabled = false;
  draw();
});
on("tree", (message) => {
  const follows = shown === newest;
  newest = message.tree;
  if (follows) shown = newest;
  if (earlier && follows) earlier.disabled = false;
  draw();
});
document.addEventListener("themechange", draw);
draw();
liveStore(store, charts.runs[0]);
