/** A small histogram: bars over bins, side by side where there are several counts. */

import { all, h, pageData, svg } from "../dom.js";
import { number } from "../format.js";

/** @typedef {{low: number, high: number, counts: number[], over?: boolean}} Bin of one count for each distribution; `over`: past a limit */

const NAMED = 12; // as many bins have their numbers written out
const HEIGHT = 60;

/** @param {Bin[]} bins in order @param {string} about what they count @param {string} [axis] what they are of @returns {HTMLElement} */
export function histogram(bins, about, axis = "") {
  const most = Math.max(1, ...bins.flatMap((bin) => bin.counts));
  const named = bins.length <= NAMED;
  const said = bins.map((bin) => `${label(bin)}: ${counts(bin)}`).join(", ");
  const columns = bins.map((bin) => h("div", { class: `histogram-bin${bin.over ? " over" : ""}`, title: `${label(bin)}: ${counts(bin)}` }, named ? h("span", { class: "small" }, counts(bin)) : null, bars(bin, most), named ? h("span", { class: "small muted" }, label(bin)) : null));
  const ends = named ? null : h("div", { class: "spread small muted" }, h("span", {}, number(bins[0].low)), h("span", {}, axis), h("span", {}, number(bins[bins.length - 1].high)));
  return h("div", { role: "img", "aria-label": `${about}: ${said}` }, h("div", { class: named ? "histogram" : "histogram histogram-many" }, ...columns), ends);
}

/** @param {Bin} bin @param {number} most */
function bars(bin, most) {
  const width = 10 / bin.counts.length;
  const rects = bin.counts.map((count, place) => svg("rect", { x: place * width, y: HEIGHT * (1 - count / most), width, height: (HEIGHT * count) / most, class: place === bin.counts.length - 1 ? "histogram-now" : "histogram-before" }));
  return svg("svg", { viewBox: `0 0 10 ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...rects);
}

/** @param {Bin} bin */
function label(bin) {
  return bin.low === bin.high ? number(bin.low) : `${number(bin.low)}–${number(bin.high)}`;
}

/** @param {Bin} bin */
function counts(bin) {
  return bin.counts.map((count) => number(count)).join(" → ");
}

for (const place of all("[data-histogram]")) place.replaceChildren(histogram(pageData(place.dataset.histogram || ""), place.dataset.about || "", place.dataset.axis));
