/** A panel: a card with a chart that is drawn once it scrolls into view and follows the store. */

import { h, one } from "../dom.js";
import { absolute, ago, number, percent, toNumber } from "../format.js";
import { t } from "../i18n.js";
import { afterReady, awaited, shown } from "../ready.js";
import { OWN_AXIS, axisTitle, place, smooth } from "./axes.js";
import { seriesColour } from "./palette.js";
import { Plot, valueAt } from "./plot.js";

/**
 * @typedef {{id: string, title: string, metrics: string[], unit: string, share: boolean, labels?: string[], low?: string, high?: string, scale?: number}} PanelInfo `low`, `high`: metrics that bound the first
 * @typedef {{axis: string, smoothing: number, log: boolean, bare?: boolean}} View `bare`: without the bands, of which many hide the curves
 */

const REDRAW_MS = 500;
const STYLES = /** @type {("solid"|"dash"|"dot")[]} */ (["solid", "dash", "dot"]);

/** Panels now in view; they share the hover. @type {Set<Panel>} */
const visible = new Set();

const watcher = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      const panel = /** @type {any} */ (entry.target).panel;
      if (entry.isIntersecting) {
        visible.add(panel);
        if (inView(entry.boundingClientRect)) {
          awaited(panel);
          panel.shown();
        } else afterReady(() => visible.has(panel) && panel.shown());
      } else {
        visible.delete(panel);
        shown(panel); // what is drawn above it has pushed it out of view
      }
    }
  },
  { rootMargin: "200px" },
);

/** @param {DOMRectReadOnly} box */
function inView(box) {
  return box.bottom > 0 && box.top < window.innerHeight;
}

export class Panel {
  /**
   * @param {HTMLElement} card with `.chart`, `[data-panel-value]` and `[data-panel-note]`
   * @param {PanelInfo} info
   * @param {import("./store.js").Store} store
   * @param {View} view shared by all panels, changed in place
   */
  constructor(card, info, store, view) {
    this.card = card;
    this.info = info;
    this.store = store;
    this.view = view;
    this.dirty = true;
    this.timer = 0;
    this.drawnAt = 0;
    /** @type {import("./plot.js").Curve[]} */
    this.curves = [];
    /** @type {number[][]} times of the points, parallel to the curves */
    this.times = [];
    this.box = /** @type {HTMLElement} */ (one(".chart", card));
    this.value = /** @type {HTMLElement} */ (one("[data-panel-value]", card));
    this.note = /** @type {HTMLElement} */ (one("[data-panel-note]", card));
    this.plot = new Plot(this.box, { onHover: (x) => hoverAll(x) });
    /** @type {any} */ (card).panel = this;
    for (const name of info.metrics) store.listen(name, () => this.redraw());
    watcher.observe(card);
  }

  /** It came into view. */
  async shown() {
    if (this.dirty) this.readout();
    const bounds = [this.info.low, this.info.high].filter((name) => name !== undefined && name !== "");
    const names = [...this.info.metrics, .../** @type {string[]} */ (bounds)];
    const loads = this.store.runs.map((run) => this.store.load(run.id, names));
    try {
      await Promise.all(loads);
    } catch (error) {
      this.message(/** @type {Error} */ (error).message);
      shown(this);
      return;
    }
    if (this.dirty) this.redraw();
  }

  /** Something it shows changed: draw soon, not more often than is seen, and only in view. */
  redraw() {
    this.dirty = true;
    if (this.timer || !visible.has(this)) return;
    const wait = Math.max(0, this.drawnAt + REDRAW_MS - performance.now());
    this.timer = window.setTimeout(() => {
      this.timer = 0;
      this.draw();
    }, wait);
  }

  async draw() {
    this.dirty = false;
    this.drawnAt = performance.now();
    const { curves, times, bad, any } = this.collect();
    this.times = times;
    this.curves = curves;
    this.readout();
    if (!any) {
      this.message(t("Not reported yet."));
      shown(this);
      return;
    }
    one(".chart-message", this.box)?.remove();
    const own = this.info.metrics.map((name) => this.store.runs.map((run) => this.store.newest(run.id, name)?.axis)).flat().find(Boolean);
    const converted = this.view.axis !== OWN_AXIS && (curves.length > 0 || this.view.axis === own);
    await this.plot.draw(curves, {
      x: converted ? axisTitle(this.view.axis) : axisTitle(own || ""),
      y: this.info.unit,
      share: this.info.share,
      log: this.view.log,
      bad,
    });
    shown(this);
  }

  /** The curves on the axis that is chosen. */
  collect() {
    /** @type {import("./plot.js").Curve[]} */
    const curves = [];
    /** @type {number[][]} */
    const times = [];
    /** @type {number[]} */
    const bad = [];
    let any = false;
    for (const run of this.store.runs) {
      const clocks = this.store.clocks[run.id] || [];
      const start = startOf(this.store, run.id);
      this.info.metrics.forEach((name, order) => {
        const found = this.store.curves.get(`${run.id} ${name}`) || [];
        const newest = Math.max(0, ...found.map((one) => one.attempt));
        const scale = this.info.scale || 1;
        const scaled = (/** @type {number|null} */ value) => (value === null ? null : value * scale);
        for (const curve of found) {
          if (curve.buckets.length) any = true;
          const dash = this.store.runs.length > 1 ? run.style : STYLES[order % 3];
          const line = /** @type {import("./plot.js").Curve} */ ({ name: this.label(run, name), short: this.short(name), colour: seriesColour(run.colour), dash, faint: curve.attempt < newest, x: [], y: [], ...(this.view.bare ? {} : { low: [], high: [] }) });
          const at = [];
          for (const bucket of curve.buckets) {
            const x = place(curve, bucket, this.view.axis, clocks, start);
            if (x === null) continue;
            if (bucket[7] > 0) bad.push(x);
            if (bucket[6] === 0) continue;
            line.x.push(x);
            line.y.push(scaled(bucket[2]));
            line.low?.push(scaled(order ? bucket[3] : this.bound(run.id, curve, this.info.low, bucket, 3)));
            line.high?.push(scaled(order ? bucket[4] : this.bound(run.id, curve, this.info.high, bucket, 4)));
            at.push(bucket[8]);
          }
          if (!line.x.length) continue;
          if (this.view.smoothing > 0 && line.x.length > 3) {
            curves.push({ ...line, faint: true, low: undefined, high: undefined });
            times.push(at);
            curves.push({ ...line, y: smooth(line.y, this.view.smoothing), low: undefined, high: undefined });
          } else curves.push(line);
          times.push(at);
        }
      });
    }
    return { curves, times, bad: bad.slice(-200), any };
  }

  /** The interval's end that was reported with a value, or the bucket's own minimum or maximum. @param {string} run @param {import("./store.js").Curve} curve @param {string|undefined} name @param {any[]} bucket @param {3|4} column */
  bound(run, curve, name, bucket, column) {
    const found = name && this.store.curves.get(`${run} ${name}`)?.find((one) => one.attempt === curve.attempt);
    const same = found && found.buckets.find((one) => one[0] === bucket[0]);
    return same ? same[column] : bucket[column];
  }

  /** What tells a metric from the others of this panel; empty where it is alone. @param {string} name */
  short(name) {
    const run = this.store.runs[0].id;
    const present = this.info.metrics.filter((other) => this.store.newest(run, other));
    if (this.store.runs.length > 1 || present.length < 2) return "";
    return this.info.labels?.[this.info.metrics.indexOf(name)] || name;
  }

  /** @param {any} run @param {string} name */
  label(run, name) {
    return this.store.runs.length > 1 ? run.name : name;
  }

  /** Newest values, or those under the pointer. @param {number | null} [x] */
  readout(x = null) {
    const parts = [];
    let note = "";
    if (x !== null) {
      const reaches = (/** @type {import("./plot.js").Curve} */ curve) => curve.x[0] <= x && x <= curve.x[curve.x.length - 1];
      const someReach = this.curves.some(reaches);
      /** @type {{x: number, when: number} | null} */
      let nearest = null;
      for (let i = 0; i < this.curves.length; i += 1) {
        const curve = this.curves[i];
        if (curve.faint && this.view.smoothing > 0) continue;
        const found = valueAt(curve, x);
        if (!found) continue;
        if (someReach && !reaches(curve)) {
          parts.push(this.entry(curve.colour, curve.dash, "–", curve.name, true, curve.short));
          continue;
        }
        if (!nearest || Math.abs(found.x - x) < Math.abs(nearest.x - x)) nearest = { x: found.x, when: this.times[i]?.[found.index] || 0 };
        parts.push(this.entry(curve.colour, curve.dash, this.format(found.y), `${curve.name} · ${axisTitle(this.view.axis)} ${number(found.x)}`, curve.faint, curve.short));
      }
      if (nearest) note = `@ ${number(nearest.x, 6)}${nearest.when ? ` · ${absolute(nearest.when).slice(11)}, ${ago(nearest.when)}` : ""}`;
    } else {
      for (const run of this.store.runs) {
        this.info.metrics.forEach((name, order) => {
          const row = this.store.newest(run.id, name);
          if (!row) return;
          const dash = this.store.runs.length > 1 ? run.style : STYLES[order % 3];
          const title = `${this.label(run, name)}, ${axisTitle(row.axis)} ${number(row.last_step)}`;
          parts.push(this.entry(seriesColour(run.colour), dash, this.format(row.last === null ? null : toNumber(row.last) * (this.info.scale || 1)), title, false, this.short(name)));
        });
      }
      if (this.view.smoothing > 0) note = t("smoothed, EMA %(weight)s", { weight: this.view.smoothing });
    }
    this.note.textContent = note;
    this.value.replaceChildren(...parts);
  }

  /** @param {string} colour @param {string} dash @param {string} text @param {string} title @param {boolean} [faint] @param {string} [name] */
  entry(colour, dash, text, title, faint, name = "") {
    const key = h("span", { class: `key${dash === "solid" ? "" : ` key-${dash}`}` });
    key.style.setProperty("--key", colour);
    return h("span", { class: `readout${faint ? " faint" : ""}`, title }, key, name ? h("span", { class: "muted" }, name) : null, h("span", { class: text === "NaN" ? "nan" : "" }, text));
  }

  /** @param {number | null} value */
  format(value) {
    return this.info.share && value !== null && Number.isFinite(value) ? percent(value) : number(value);
  }

  /** @param {string} text */
  message(text) {
    one(".skeleton", this.box)?.remove();
    if (this.plot.ready) return;
    let note = one(".chart-message", this.box);
    if (!note) {
      note = h("p", { class: "chart-message" });
      this.box.append(note);
    }
    note.textContent = text;
  }

  destroy() {
    watcher.unobserve(this.card);
    visible.delete(this);
    clearTimeout(this.timer);
    this.plot.destroy();
  }
}

/** @param {number | null} x */
function hoverAll(x) {
  for (const panel of visible) {
    panel.plot.cursor(x);
    panel.readout(x);
  }
}

/** When the run's first value was measured. @param {import("./store.js").Store} store @param {string} run */
function startOf(store, run) {
  let start = Infinity;
  for (const [key, curves] of store.curves) {
    if (!key.startsWith(`${run} `)) continue;
    for (const curve of curves) if (curve.buckets.length) start = Math.min(start, curve.buckets[0][8]);
  }
  const clock = store.clocks[run]?.[0];
  return clock ? Math.min(start, clock[1]) : start;
}

/** The empty card of a panel. @param {PanelInfo} info */
export function panelCard(info) {
  return h(
    "section",
    { class: "card panel" },
    h("div", { class: "card-head" }, h("h3", { class: "clip", title: info.title }, info.title), h("span", { class: "panel-note", "data-panel-note": true }), h("span", { class: "panel-value", "data-panel-value": true })),
    h("div", { class: "chart" }, h("div", { class: "skeleton chart-skeleton" })),
  );
}

for (const event of ["themechange"]) {
  document.addEventListener(event, () => setTimeout(() => visible.forEach((panel) => panel.redraw()), 0));
}

export function redrawAll() {
  for (const panel of visible) panel.redraw();
}
