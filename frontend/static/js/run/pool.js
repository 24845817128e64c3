/** Pool: what waits against its target, how stale it is, where everything went, why training waited. */

import { api } from "../api.js";
import { histogram } from "../charts/histogram.js";
import { Plot } from "../charts/plot.js";
import { seriesColour, colour } from "../charts/palette.js";
import { h, one, pageData, svg } from "../dom.js";
import { absolute, ago, duration, number, percent } from "../format.js";
import { t } from "../i18n.js";
import { follow, on, runId } from "./page.js";

/**
 * @typedef {{at: number, trainer_version: number, produced: number, consumed: number, waiting: number, leased?: number, discarded: Record<string, number>, categories: Record<string, number>, target: Record<string, number>, staleness: Record<string, number>, oldest_s: number}} Snapshot
 * @typedef {{id: number, at: number, text: string, waited_s: number}} Decision
 */

const MOST = 500;
const data = pageData("pool-data");
/** @type {Snapshot[]} */
let history = data.snapshots;
/** @type {Map<number, Decision>} */
const decisions = new Map(data.decisions.map((/** @type {Decision} */ one_) => [one_.id, one_]));
const plot = new Plot(/** @type {HTMLElement} */ (one("#pool-chart")));

/** @param {string} id @param {...(Node|string)} children */
function fill(id, ...children) {
  document.getElementById(id)?.replaceChildren(...children);
}

function draw() {
  const now = history[history.length - 1];
  if (!now) return;
  /** @type {HTMLElement} */ (one("#pool")).hidden = false;
  /** @type {HTMLElement} */ (one("#pool-empty")).hidden = true;
  const gone = sum(now.discarded);
  fill("pool-stats",
    stat(t("Produced"), number(now.produced)), stat(t("Consumed"), number(now.consumed)), stat(t("Waiting"), `${number(now.waiting)}`, t("of at most %(n)s", { n: data.capacity })),
    stat(t("Leased"), number(leased(now)), t("until a checkpoint covers them")),
    stat(t("Discarded"), number(gone)), stat(t("Trainer version"), number(now.trainer_version)), stat(t("Oldest waits"), duration(now.oldest_s)));
  const balanced = now.produced === now.consumed + now.waiting + leased(now) + gone;
  const law = /** @type {HTMLElement} */ (one("#pool-law"));
  law.className = balanced ? "small muted" : "notice notice-bad";
  law.textContent = `${t("Conservation")}: ${number(now.produced)} = ${number(now.consumed)} + ${number(now.waiting)} + ${number(leased(now))} + ${number(gone)} ${balanced ? "✓" : t("does not hold: groups are missing")} · ${absolute(now.at).slice(11)}`;
  categories(now);
  staleness(now);
  discarded(now, gone);
  chart();
}

/** Groups that the trainer holds. @param {Snapshot} snapshot */
function leased(snapshot) {
  return snapshot.leased ?? 0;
}

/** @param {string} label @param {string} value @param {string} [small] */
function stat(label, value, small) {
  return h("div", { class: "stat" }, h("dt", {}, label), h("dd", {}, value, small ? h("small", {}, ` ${small}`) : null));
}

/** @param {Record<string, number>} counts */
function sum(counts) {
  return Object.values(counts).reduce((a, b) => a + b, 0);
}

/** @param {Snapshot} now */
function categories(now) {
  const all = sum(now.categories);
  const names = [...new Set([...Object.keys(now.categories), ...Object.keys(now.target)])].sort();
  if (!names.length) return fill("pool-categories", h("p", { class: "muted" }, t("Nothing waits.")));
  fill("pool-categories", ...names.map((name, index) => {
    const count = now.categories[name] ?? 0;
    const share = all ? count / all : null;
    const target = now.target[name];
    const over = target !== undefined && share !== null && share > target + 1e-9;
    const text = share === null ? t("none waits") : `${number(count)} · ${percent(share, 0)}${target === undefined ? "" : ` / ${percent(target, 0)}`}`;
    return h("div", { class: "bar-row" }, h("span", { class: "clip" }, name), bar(share ?? 0, seriesColour(index), target), h("span", { class: `num small${over ? " warn-text" : ""}` }, text, over ? ` ${t("over")}` : ""));
  }));
}

/** A horizontal bar from 0 to 1 with a mark. @param {number} share @param {string} fillColour @param {number} [mark] */
function bar(share, fillColour, mark) {
  const box = svg("svg", { viewBox: "0 0 100 12", preserveAspectRatio: "none", class: "hbar", "aria-hidden": "true" }, svg("rect", { width: 100, height: 12, class: "hbar-back" }));
  box.append(svg("rect", { width: 100 * Math.min(1, share), height: 12, fill: fillColour }));
  if (mark !== undefined) box.append(svg("line", { x1: 100 * mark, x2: 100 * mark, y1: 0, y2: 12, class: "hbar-mark" }));
  return box;
}

/** @param {Snapshot} now */
function staleness(now) {
  const limit = Math.max(data.limit, ...Object.keys(now.staleness).map(Number));
  if (!sum(now.staleness)) return fill("pool-staleness", h("p", { class: "muted" }, t("Nothing waits.")));
  const bins = Array.from({ length: limit + 1 }, (_, age) => ({ low: age, high: age, counts: [now.staleness[String(age)] ?? 0], over: age > data.limit }));
  fill("pool-staleness", histogram(bins, t("Groups by staleness")), h("p", { class: "hint" }, t("Nothing above %(n)s is trained on.", { n: data.limit })));
}

/** @param {Snapshot} now @param {number} gone */
function discarded(now, gone) {
  const rows = Object.entries(now.discarded).sort((a, b) => b[1] - a[1]);
  if (!gone) return fill("pool-discarded", h("p", { class: "muted" }, t("Nothing was discarded.")));
  fill("pool-discarded", ...rows.map(([reason, count]) => h("div", { class: "bar-row" }, h("span", { class: "clip" }, reason.replaceAll("_", " ")), bar(count / gone, seriesColour(7)), h("span", { class: "num small" }, `${number(count)} · ${percent(count / gone, 0)}`))));
}

function chart() {
  const start = history[0].at;
  const x = history.map((one_) => (one_.at - start) / 60);
  const line = (/** @type {string} */ name, /** @type {string} */ tint, /** @type {(s: Snapshot) => number} */ get) => ({ name, colour: tint, dash: /** @type {"solid"} */ ("solid"), stacked: true, x, y: history.map(get) });
  const produced = { name: t("Produced"), colour: colour("--text"), dash: /** @type {"dot"} */ ("dot"), x, y: history.map((s) => s.produced) };
  one("#pool-legend")?.replaceChildren(
    ...[[t("Consumed"), 0], [t("Leased"), 1], [t("Waiting"), 4], [t("Discarded"), 7]].map(([name, index]) => h("span", { class: "readout" }, h("span", { class: `key series-${index}` }), name)),
    h("span", { class: "readout" }, h("span", { class: "key key-dot key-text" }), t("Produced")),
  );
  plot.draw([
    line(t("Consumed"), seriesColour(0), (s) => s.consumed),
    line(t("Leased"), seriesColour(1), leased),
    line(t("Waiting"), seriesColour(4), (s) => s.waiting),
    line(t("Discarded"), seriesColour(7), (s) => sum(s.discarded)),
    produced,
  ], { x: t("minutes since the pool's first report"), y: t("groups") });
}

function list() {
  const rows = [...decisions.values()].sort((a, b) => b.id - a.id).slice(0, 200);
  fill("pool-decisions", ...(rows.length ? rows.map((row) => h("li", {}, h("time", { datetime: new Date(row.at * 1000).toISOString(), title: absolute(row.at) }, absolute(row.at).slice(11)), h("span", {}, row.text), h("time", { class: "num", datetime: new Date(row.at * 1000).toISOString(), "data-time": true }, ago(row.at)))) : [h("li", { class: "muted" }, t("The gate has decided nothing yet: no batch had to wait for its shares."))]));
}

/** @param {Snapshot[]} snapshots */
function add(snapshots) {
  for (const snapshot of snapshots) if (!history.length || snapshot.at > history[history.length - 1].at) history.push(snapshot);
  if (history.length > 2 * MOST) history = history.filter((_, i) => i % 2 === 0 || i === history.length - 1);
  draw();
}

on("pool", (message) => add([message.pool]));
on("decision", async (message) => {
  const rows = message.more ? (await api(`runs/${runId}/decisions`)).items : message.rows;
  for (const row of rows) decisions.set(row.id, row);
  list();
});
document.addEventListener("themechange", draw);
draw();
list();
follow(data.cursor);
