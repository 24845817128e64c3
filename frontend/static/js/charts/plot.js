/** The one module that knows Plotly. SVG traces only; its script and style come as files. */

import { number } from "../format.js";
import { colour } from "./palette.js";

/**
 * @typedef {object} Curve one line of a plot; `low` and `high` draw a band around it
 * @property {string} name
 * @property {string} [short] what tells it from the others of its panel
 * @property {string} colour
 * @property {"solid"|"dash"|"dot"} dash
 * @property {boolean} [faint] superseded or raw: drawn lighter
 * @property {number[]} x
 * @property {(number|null)[]} y
 * @property {(number|null)[]} [low]
 * @property {(number|null)[]} [high]
 * @property {boolean} [stacked] an area on top of the ones before
 *
 * @typedef {object} Look
 * @property {string} x title of the horizontal axis, with its unit
 * @property {string} y title of the vertical axis, with its unit
 * @property {boolean} [share] values are shares: shown as percentages
 * @property {boolean} [log]
 * @property {number[]} [bad] x of values that are not finite
 */

const HEIGHT = 190;
const MARGIN = { l: 52, r: 10, t: 6, b: 36 };

// Plotly 7.1.0 adds an inline style for its map traces, which we never draw, unless an element with
// this id exists. The browser tests fail on the CSP report when another version asks for another id.
const MAP_STYLE_ID = "9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53";

/** @type {Promise<any> | null} */
let loading = null;

/** The library, loaded once; asked for early, it is there when the first curves are. @returns {Promise<any>} */
export function plotly() {
  loading ??= new Promise((resolve, reject) => {
    const place = /** @type {HTMLElement | null} */ (document.querySelector("[data-plotly]"));
    const standIn = document.createElement("meta");
    standIn.id = MAP_STYLE_ID;
    const script = document.createElement("script");
    script.src = place?.dataset.plotly || "";
    script.onload = () => resolve(/** @type {any} */ (window).Plotly);
    script.onerror = () => reject(new Error("The chart library could not be loaded."));
    document.head.append(standIn, script);
  });
  return loading;
}

export class Plot {
  /**
   * @param {HTMLElement} box
   * @param {{onHover?: (x: number | null) => void, onZoom?: (range: [number, number] | null) => void}} [events]
   */
  constructor(box, events = {}) {
    this.box = box;
    this.events = events;
    this.ready = false;
    this.line = document.createElement("div");
    this.line.className = "chart-cursor";
    this.line.hidden = true;
    this.sizes = new ResizeObserver(() => this.ready && this.box.clientWidth > 0 && this.library.Plots.resize(this.box));
  }

  /**
   * @param {Curve[]} curves
   * @param {Look} look
   */
  async draw(curves, look) {
    const library = await plotly();
    this.library = library;
    const first = !this.ready;
    await library.react(this.box, traces(curves, look), layout(look, curves), CONFIG);
    if (!first) return;
    this.ready = true;
    this.box.querySelector(".skeleton")?.remove();
    this.box.append(this.line);
    this.sizes.observe(this.box);
    const box = /** @type {any} */ (this.box);
    box.on("plotly_hover", (/** @type {any} */ event) => this.events.onHover?.(Number(event.xvals?.[0] ?? event.points[0].x)));
    box.on("plotly_unhover", () => this.events.onHover?.(null));
    box.on("plotly_relayout", (/** @type {any} */ change) => {
      if (change["xaxis.autorange"]) this.events.onZoom?.(null);
      else if ("xaxis.range[0]" in change) this.events.onZoom?.([Number(change["xaxis.range[0]"]), Number(change["xaxis.range[1]"])]);
    });
  }

  /** A vertical line at x, for the hover that all panels share; null takes it away. @param {number | null} x */
  cursor(x) {
    const axis = /** @type {any} */ (this.box)._fullLayout?.xaxis;
    if (!axis || x === null) {
      this.line.hidden = true;
      return;
    }
    const at = axis.l2p(x);
    this.line.hidden = !(at >= 0 && at <= axis._length);
    this.line.style.transform = `translateX(${axis._offset + at}px)`;
  }

  destroy() {
    this.sizes.disconnect();
    if (this.ready) this.library.purge(this.box);
  }
}

const CONFIG = { displayModeBar: false, responsive: false, doubleClick: "reset", showTips: false };

/**
 * @param {Curve[]} curves
 * @param {Look} look
 */
function traces(curves, look) {
  /** @type {any[]} */
  const found = [];
  for (const curve of curves) {
    const few = curve.y.length <= 25;
    if (curve.low && curve.high && curve.low.some((low, i) => low !== curve.high?.[i])) {
      const edge = { x: curve.x, mode: "lines", line: { width: 0 }, hoverinfo: "skip", showlegend: false, type: "scatter" };
      found.push({ ...edge, y: curve.low }, { ...edge, y: curve.high, fill: "tonexty", fillcolor: clear(curve.colour, 0.16) });
    }
    found.push({
      type: "scatter",
      x: curve.x,
      y: curve.y,
      name: curve.name,
      mode: few && !curve.stacked ? "lines+markers" : "lines",
      line: { color: curve.faint ? clear(curve.colour, 0.4) : curve.colour, width: curve.faint ? 1 : 1.7, dash: curve.dash },
      marker: { size: 4 },
      hoverinfo: "none",
      connectgaps: false,
      ...(curve.stacked ? { stackgroup: "one", fillcolor: clear(curve.colour, 0.35) } : {}),
    });
  }
  if (look.bad?.length) {
    found.push({
      type: "scatter", x: look.bad, y: look.bad.map(() => 0.02), yaxis: "y2", mode: "markers", hoverinfo: "none", cliponaxis: false,
      marker: { symbol: "x-thin-open", size: 7, color: colour("--warn"), line: { width: 1.5, color: colour("--warn") } },
    });
  }
  return found;
}

/** Smallest and largest value of the curves, and the largest absolute one. @param {Curve[]} curves */
function extent(curves) {
  const values = curves.flatMap((curve) => [...curve.y, ...(curve.low || []), ...(curve.high || [])]).filter((value) => value !== null);
  const low = values.reduce((a, b) => Math.min(a, b), Infinity);
  const high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  return { low, high, most: Math.max(Math.abs(low), Math.abs(high)) };
}

/** Around a constant Plotly would show one below to one above it, which shares cannot reach. @param {number} value @param {boolean | undefined} share */
function around(value, share) {
  if (value === 0) return share ? [-0.002, 0.05] : [-0.04, 1];
  const room = 0.1 * Math.abs(value);
  return [value - room, share ? Math.max(value, Math.min(value + room, 1)) + 0.004 : value + room];
}

/** @param {Look} look @param {Curve[]} curves */
function layout(look, curves) {
  const { low, high, most } = extent(curves);
  const range = low === high && !look.log ? { range: around(low, look.share), autorange: false } : { autorange: true };
  const axis = {
    gridcolor: colour("--line"), zeroline: false, linecolor: colour("--line"), tickcolor: colour("--line"), ticklen: 3,
    title: { standoff: 6, font: { size: 11, color: colour("--faint") } }, tickfont: { size: 11, color: colour("--muted") }, automargin: false,
  };
  return {
    height: HEIGHT, margin: MARGIN, showlegend: false, hovermode: "x", dragmode: "zoom", uirevision: look.x + look.log,
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: getComputedStyle(document.body).fontFamily, size: 11, color: colour("--muted") },
    xaxis: { ...axis, title: { ...axis.title, text: look.x }, showgrid: false, nticks: 7 },
    yaxis: {
      ...axis, title: { ...axis.title, text: look.y }, nticks: 5, type: look.log ? "log" : "linear",
      tickformat: look.share && !look.log ? ",.3~%" : most >= 10_000 ? "~s" : "~g", fixedrange: true, automargin: true, ...range,
    },
    yaxis2: { overlaying: "y", range: [0, 1], visible: false, fixedrange: true },
  };
}

/** The colour with some transparency. @param {string} rgb @param {number} alpha */
function clear(rgb, alpha) {
  const parts = rgb.match(/[\d.]+/g) || ["0", "0", "0"];
  return `rgba(${parts.slice(0, 3).join(",")},${alpha})`;
}

/** The value of a curve at the x nearest to a given one. @param {Curve} curve @param {number} x */
export function valueAt(curve, x) {
  const xs = curve.x;
  if (!xs.length) return null;
  let low = 0;
  let high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1;
    else high = middle;
  }
  if (low > 0 && x - xs[low - 1] < xs[low] - x) low -= 1;
  return { x: xs[low], y: curve.y[low], text: number(curve.y[low]), index: low };
}
