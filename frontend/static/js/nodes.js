/** Nodes and their devices: utilisation and memory, as cells of a strip or as a table. */

import { h } from "./dom.js";
import { ago, duration, percent, size } from "./format.js";
import { t } from "./i18n.js";

const SILENT_S = 15; // a sampler reports every two seconds

/**
 * @typedef {{name: string, kind: string, busy: number|null, memory_used?: number|null, memory_total?: number|null}} Device
 * @typedef {{node: string, at: number, devices: Device[]}} Sample
 */

/** @param {HTMLElement} box @param {Sample[]} samples @param {"strip"|"cards"} look */
export function drawNodes(box, samples, look) {
  if (!samples.length) return;
  box.replaceChildren(...samples.map((sample) => (look === "strip" ? strip(sample) : card(sample))));
}

/** @param {number|null|undefined} value */
function meter(value) {
  return h("meter", { min: 0, max: 1, value: value ?? 0 });
}

/** When the node was heard; figures of one that is silent are not those of now. @param {Sample} sample */
function heard(sample) {
  const age = Date.now() / 1000 - sample.at;
  return age > SILENT_S ? h("span", { class: "badge badge-warn" }, t("silent for %(time)s", { time: duration(age) })) : h("span", { class: "small muted" }, ago(sample.at));
}

/** @param {Sample} sample */
function strip(sample) {
  const cells = sample.devices.map((device) => {
    const share = device.busy ?? share_of(device);
    return h("div", { class: "device-cell", title: device.name }, h("span", { class: "small clip" }, device.name), meter(share), h("span", { class: "num small" }, percent(share, 0)));
  });
  return h("div", { class: "node" }, h("div", { class: "small muted clip" }, `${sample.node} · `, heard(sample)), h("div", { class: "cells" }, ...cells));
}

/** @param {Device} device */
function share_of(device) {
  return device.memory_total ? (device.memory_used ?? 0) / device.memory_total : null;
}

/** @param {Sample} sample */
function card(sample) {
  const rows = sample.devices.map((device) =>
    h("tr", {},
      h("td", {}, device.name), h("td", { class: "muted" }, device.kind),
      h("td", { class: "num" }, device.busy === null || device.busy === undefined ? "–" : percent(device.busy, 0)), h("td", { class: "cell-meter" }, device.busy === null || device.busy === undefined ? null : meter(device.busy)),
      h("td", { class: "num" }, device.memory_total ? `${size(device.memory_used)} / ${size(device.memory_total)}` : "–"), h("td", { class: "cell-meter" }, device.memory_total ? meter(share_of(device)) : null)));
  const head = h("tr", {}, ...[t("Device"), t("Kind"), t("Busy"), "", t("Memory"), ""].map((text, i) => h("th", { class: i === 2 || i === 4 ? "num" : "" }, text)));
  return h("section", { class: "card" },
    h("div", { class: "card-head" }, h("h2", {}, sample.node), heard(sample)),
    h("div", { class: "table-wrap" }, h("table", { class: "table" }, h("thead", {}, head), h("tbody", {}, ...rows))));
}
