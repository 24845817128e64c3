/** Devices: a lane of phases for each actor, the straggler by name, utilisation of the nodes. */

import { api } from "../api.js";
import { Plot } from "../charts/plot.js";
import { seriesColour } from "../charts/palette.js";
import { h, one, pageData, svg } from "../dom.js";
import { absolute, duration, percent, size } from "../format.js";
import { t } from "../i18n.js";
import { subscribe } from "../live.js";
import { follow, on, runId } from "./page.js";

/**
 * @typedef {{source: string, attempt: number, spans: [string, number, number][], shares: Record<string, number>, busy: number}} Lane
 * @typedef {import("../nodes.js").Sample} Sample
 */

const PHASES = ["generate", "tool", "queue", "train", "sync", "evaluate", "idle"];
const WIDTH = 1000;
const KEPT_S = 15 * 60;
const WINDOWS_S = [30, 60, 300];
const NOT_BUSY = ["idle", "queue", "tool"];
let windowS = 60;
const data = pageData("device-data");
/** @type {Lane[]} */
let lanes = data.lanes;
/** @type {Sample[]} */
let samples = data.samples;
/** @type {Map<string, Plot>} */
const plots = new Map();
const names = () => /** @type {Record<string, string>} */ ({ generate: t("generate"), tool: t("tool wait"), queue: t("queue"), train: t("train"), sync: t("weight sync"), evaluate: t("evaluate"), idle: t("idle") });

function legend() {
  const choose = h("select", { class: "select", "aria-label": t("Window"), onchange: (/** @type {Event} */ event) => {
    windowS = Number(/** @type {HTMLSelectElement} */ (event.target).value);
    drawLanes();
  } }, ...WINDOWS_S.map((seconds) => h("option", { value: seconds, selected: seconds === windowS }, t("last %(time)s", { time: duration(seconds) }))));
  one("#lane-window")?.replaceChildren(choose);
  one("#phase-legend")?.replaceChildren(...PHASES.map((phase) => h("span", { class: "row" }, h("span", { class: `phase phase-${phase}` }), names()[phase])));
}

function drawLanes() {
  const box = /** @type {HTMLElement} */ (one("#lanes"));
  const newest = Math.max(0, ...lanes.map((lane) => lane.attempt));
  const shown = lanes.filter((lane) => lane.attempt === newest && lane.spans.length);
  if (!shown.length) {
    box.replaceChildren(h("div", { class: "empty" }, h("h3", {}, t("No phases reported yet")), h("p", {}, t("Every actor reports what it does on a monotonic clock: generating, waiting for tools, training, passing weights on."))));
    return;
  }
  const stop = Math.max(...shown.flatMap((lane) => lane.spans.map((span) => span[2])));
  const first = Math.min(...shown.flatMap((lane) => lane.spans.map((span) => span[1])));
  const start = Math.max(first, stop - windowS);
  box.replaceChildren(
    ...shown.map((lane) => h("div", { class: "lane" }, h("span", { class: "clip mono small", title: lane.source }, lane.source), drawLane(lane, start, stop), busyLabel(lane, start, stop))),
    h("div", { class: "lane lane-axis" }, h("span"), h("div", { class: "spread small faint" }, h("span", {}, absolute(start).slice(11)), h("span", { class: "clip" }, t("%(time)s shown", { time: duration(stop - start) })), h("span", {}, absolute(stop).slice(11))), h("span")),
  );
  straggler(shown);
}

/** Share of the shown window in each phase. @param {Lane} lane @param {number} start @param {number} stop */
function busyLabel(lane, start, stop) {
  /** @type {Record<string, number>} */
  const shares = {};
  for (const [phase, from, to] of lane.spans) {
    const inside = Math.min(to, stop) - Math.max(from, start);
    if (inside > 0) shares[phase] = (shares[phase] || 0) + inside / Math.max(stop - start, 1e-6);
  }
  const busy = Object.entries(shares).reduce((total, [phase, share]) => total + (NOT_BUSY.includes(phase) ? 0 : share), 0);
  const detail = Object.entries(shares).map(([phase, share]) => `${names()[phase]} ${percent(share, 0)}`).join(", ");
  return h("span", { class: "num small", title: detail }, t("%(share)s busy", { share: percent(Math.min(1, busy), 0) }));
}

/** @param {Lane} lane @param {number} start @param {number} stop */
function drawLane(lane, start, stop) {
  const scale = WIDTH / Math.max(stop - start, 1e-6);
  const box = svg("svg", { viewBox: `0 0 ${WIDTH} 18`, preserveAspectRatio: "none", class: "lane-bar", role: "img", "aria-label": lane.source });
  for (const [phase, began, to] of lane.spans) {
    const from = Math.max(began, start);
    if (to <= start) continue;
    const width = Math.max((to - from) * scale, 0.4);
    box.append(svg("rect", { x: (from - start) * scale, width, height: 18, class: `phase-${phase}` }, svg("title", {}, `${names()[phase]} ${duration(to - from)}, ${absolute(from).slice(11)}`)));
  }
  return box;
}

/** Among actors of one role, the one whose work lasts longest while others wait. @param {Lane[]} shown */
function straggler(shown) {
  /** @type {Map<string, {lane: Lane, mean: number}[]>} */
  const roles = new Map();
  for (const lane of shown) {
    const role = lane.source.replace(/[-_./]?\d+$/, "");
    const work = lane.spans.filter(([phase]) => phase === "generate" || phase === "train");
    if (!work.length) continue;
    const mean = work.reduce((total, [, from, to]) => total + to - from, 0) / work.length;
    roles.set(role, [...(roles.get(role) || []), { lane, mean }]);
  }
  const box = /** @type {HTMLElement} */ (one("#straggler"));
  const found = [];
  for (const [role, actors] of roles) {
    if (actors.length < 2) continue;
    const sorted = [...actors].sort((a, b) => a.mean - b.mean);
    const middle = sorted[Math.floor((sorted.length - 1) / 2)].mean;
    const slowest = sorted[sorted.length - 1];
    if (slowest.mean > 1.2 * middle) found.push(t("%(name)s is the straggler of %(role)s: %(time)s a piece of work, %(ratio)s times the median.", { name: slowest.lane.source, role, time: duration(slowest.mean), ratio: (slowest.mean / middle).toFixed(1) }));
  }
  const several = [...roles.values()].some((actors) => actors.length > 1);
  box.className = found.length ? "notice notice-warn" : "small muted";
  box.textContent = found.join(" ") || (several ? t("No straggler: actors of a role take about as long as each other.") : t("No straggler: each role has one actor."));
}

function drawDevices() {
  const box = /** @type {HTMLElement} */ (one("#devices"));
  if (!samples.length) {
    box.replaceChildren(h("div", { class: "empty" }, h("h3", {}, t("No device samples of this time")), h("p", {}, t("They are kept for a week. While a run works, the device sampler of each node reports here."))));
    return;
  }
  const byNode = new Map();
  for (const sample of samples) byNode.set(sample.node, [...(byNode.get(sample.node) || []), sample]);
  for (const [node, rows] of byNode) {
    const newest = rows[rows.length - 1];
    const memory = newest.devices.filter((/** @type {any} */ device) => device.memory_total);
    const id = `node-${node.replace(/\W/g, "-")}`;
    let card = document.getElementById(id);
    if (!card) {
      card = h("section", { id, class: "node-history" }, h("div", { class: "spread" }, h("h3", {}, node), h("span", { class: "small muted", "data-memory": true })), h("div", { class: "row small node-legend" }), h("div", { class: "chart" }));
      if (!plots.size) box.replaceChildren();
      box.append(card);
      plots.set(node, new Plot(/** @type {HTMLElement} */ (one(".chart", card))));
    }
    const label = one("[data-memory]", card);
    if (label) label.textContent = memory.map((/** @type {any} */ device) => `${device.name} ${size(device.memory_used)} / ${size(device.memory_total)}`).join(" · ");
    const last = newest.at;
    const busy = newest.devices.filter((/** @type {any} */ device) => device.busy !== null && device.busy !== undefined);
    const curves = busy.map((/** @type {any} */ device, /** @type {number} */ index) => ({
      name: device.name, colour: seriesColour(index), dash: /** @type {"solid"} */ ("solid"),
      x: rows.map((/** @type {Sample} */ row) => (row.at - last) / 60),
      y: rows.map((/** @type {Sample} */ row) => row.devices.find((other) => other.name === device.name)?.busy ?? null),
    }));
    one(".node-legend", card)?.replaceChildren(...curves.map((/** @type {any} */ curve, /** @type {number} */ index) => h("span", { class: "readout" }, h("span", { class: `key series-${index % 8}` }), h("span", { class: "muted" }, curve.name), percent(curve.y[curve.y.length - 1], 0))));
    plots.get(node)?.draw(curves, { x: t("minutes before the newest sample"), y: t("busy share"), share: true });
  }
}

let waiting = 0;
/** New spans: the lanes are computed by the server; asked for at most every 2 s. */
function refreshLanes() {
  if (waiting) return;
  waiting = window.setTimeout(async () => {
    waiting = 0;
    const answer = await api(`runs/${runId}/spans`).catch(() => null);
    if (answer) {
      lanes = answer.lanes;
      drawLanes();
    }
  }, 2000);
}

on("spans", refreshLanes);
document.addEventListener("themechange", drawDevices);
legend();
drawLanes();
drawDevices();
follow(data.cursor);
subscribe("cluster", 0, (message) => {
  if (message.kind !== "devices" || data.is_over) return;
  const now = Date.now() / 1000;
  samples = [...samples, ...(message.nodes)].filter((row) => row.at > now - KEPT_S);
  drawDevices();
});
