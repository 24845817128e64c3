/** Parallel coordinates: one line a run, brushes that filter, colour by a metric; state in the URL. */

import { h, one, pageData, svg } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";
import { Brushes } from "./brushes.js";
import { scaleOf } from "./scale.js";

/** @typedef {import("./scale.js").Axis} Axis @typedef {import("./scale.js").Scale} Scale */

const HEIGHT = 330;
const TOP = 46;
const BOTTOM = 284; // where the axes end; below is the place of what is missing
const MISSING = 308;
const GAP = 132; // px between two axes, at least
const MOST_AXES = 12; // drawn at first
const RAMP = 5; // steps of a metric's colour, from low to high

/** @param {ParentNode} root of the part; does nothing where it holds no plot */
export function startParallel(root) {
  const box = /** @type {HTMLElement | null} */ (one("[data-parallel]", root));
  const data = pageData("parallel-data");
  if (!box || !data) return;
  new Parallel(box, /** @type {HTMLElement} */ (one("[data-parallel-bar]", root)), data.axes, data.runs).draw();
}

class Parallel {
  /** @param {HTMLElement} box @param {HTMLElement} bar @param {Axis[]} axes @param {{id: string, name: string, class: string}[]} runs */
  constructor(box, bar, axes, runs) {
    this.box = box;
    this.bar = bar;
    this.axes = axes;
    this.runs = runs;
    /** @type {Map<string, Scale>} */
    this.scales = new Map(axes.map((axis) => [axis.name, scaleOf(axis)]));
    const query = new URLSearchParams(location.search);
    const wanted = (query.get("axes") || "").split(",").filter((name) => this.scales.has(name));
    this.shown = wanted.length ? wanted : usual(axes);
    this.colour = this.scales.has(query.get("colour") || "") ? String(query.get("colour")) : "";
    this.brushes = new Brushes(query.get("brush") || "", new Set(this.scales.keys()));
    this.count = h("span", { class: "small muted", role: "status" });
    this.only = /** @type {HTMLAnchorElement} */ (h("a", { class: "button button-small", href: "#" }, t("Compare only these")));
    this.clear = h("button", { class: "button button-small", type: "button", onclick: () => this.free() }, t("Free all axes"));
    bar.replaceChildren(this.count, this.only, this.clear, this.colours(), this.picker());
  }

  /** @param {string} name @returns {Axis} */
  axis(name) {
    return /** @type {Axis} */ (this.axes.find((axis) => axis.name === name));
  }

  draw() {
    const width = Math.max(this.box.clientWidth || 800, GAP * this.shown.length);
    const gap = (width - GAP) / Math.max(1, this.shown.length - 1);
    /** @type {Map<string, number>} */
    this.x = new Map(this.shown.map((name, place) => [name, this.shown.length > 1 ? GAP / 2 + place * gap : width / 2]));
    this.lines = this.runs.map((run, place) => this.line(run, place));
    const parts = this.shown.map((name) => this.drawAxis(name));
    this.box.replaceChildren(svg("svg", { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "group", "aria-label": t("Parallel coordinates") }, ...this.lines, ...parts));
    this.update();
  }

  /** @param {number} share */
  y(share) {
    return BOTTOM - share * (BOTTOM - TOP);
  }

  /** Dashed to and from an axis on which the run has no value. @param {any} run @param {number} place */
  line(run, place) {
    const points = this.shown.map((name) => {
      const share = /** @type {Scale} */ (this.scales.get(name)).at(this.axis(name).values[place]);
      return { x: /** @type {number} */ (this.x?.get(name)), y: share === null ? null : this.y(share), value: this.axis(name).values[place] };
    });
    /** @type {string[]} */
    const whole = [];
    /** @type {string[]} */
    const broken = [];
    for (let i = 1; i < points.length; i += 1) {
      const [from, to] = [points[i - 1], points[i]];
      const known = from.y !== null && to.y !== null;
      (known ? whole : broken).push(`M${from.x.toFixed(1)} ${(from.y ?? MISSING).toFixed(1)}L${to.x.toFixed(1)} ${(to.y ?? MISSING).toFixed(1)}`);
    }
    const marks = points.filter((point) => point.y === null).map((point) => mark(point.x, point.value));
    const title = svg("title", {}, `${run.name}\n${this.shown.map((name, i) => `${name}: ${told(points[i].value)}`).join("\n")}`);
    const look = `parallel-line ${this.shade(place) || run.class}`;
    return svg("g", { class: "parallel-run", "data-run": run.id }, title,
      svg("path", { class: look, d: whole.join("") || `M${points[0].x} ${points[0].y ?? MISSING}h0.1` }),
      svg("path", { class: `${look} is-missing`, d: broken.join("") }), ...marks);
  }

  /** The class of the metric's colour; empty where lines keep the colours of their runs. @param {number} place */
  shade(place) {
    if (!this.colour) return "";
    const share = /** @type {Scale} */ (this.scales.get(this.colour)).at(this.axis(this.colour).values[place]);
    return share === null ? "ramp-none" : `ramp-${Math.min(RAMP - 1, Math.floor(share * RAMP))}`;
  }

  /** @param {string} name */
  drawAxis(name) {
    const axis = this.axis(name);
    const scale = /** @type {Scale} */ (this.scales.get(name));
    const x = /** @type {number} */ (this.x?.get(name));
    const label = axis.label.length > 20 ? `…${axis.label.slice(-19)}` : axis.label;
    const kind = axis.kind === "log" ? t("logarithmic") : axis.kind === "category" ? t("categories") : "";
    const group = svg("g", { class: `parallel-axis${axis.metric ? " is-metric" : ""}` },
      svg("text", { class: "parallel-name", x, y: 16, "text-anchor": "middle" }, label, svg("title", {}, axis.name)),
      svg("text", { x, y: 31, "text-anchor": "middle" }, kind),
      svg("line", { x1: x, x2: x, y1: TOP, y2: BOTTOM }),
      ...scale.ticks.map((tick) => svg("text", { x: x + 6, y: this.y(tick.share) + 4 }, typeof tick.text === "number" ? number(tick.text, 3) : tick.text.slice(0, 18))));
    group.append(...this.brushes.controls(axis, scale, x, { top: TOP, bottom: BOTTOM }, () => this.update()));
    return group;
  }

  /** What the brushes keep, without drawing anew. */
  update() {
    const inside = this.runs.map((_, place) => this.brushes.keep((name) => /** @type {Scale} */ (this.scales.get(name)).at(this.axis(name).values[place])));
    this.lines?.forEach((line, place) => {
      for (const path of line.querySelectorAll(".parallel-line")) path.classList.toggle("is-out", !inside[place]);
    });
    const kept = this.runs.filter((_, place) => inside[place]);
    this.count.textContent = t("%(n)s of %(all)s runs", { n: kept.length, all: this.runs.length });
    this.only.hidden = this.clear.hidden = this.brushes.size === 0;
    this.only.hidden ||= kept.length < 2;
    const query = this.query();
    history.replaceState(null, "", `?${query}`);
    query.set("runs", kept.map((run) => run.id).join(","));
    query.delete("brush");
    this.only.href = `?${query}`;
  }

  query() {
    const query = new URLSearchParams(location.search);
    const state = { axes: this.shown.join() === usual(this.axes).join() ? "" : this.shown.join(","), colour: this.colour, brush: this.brushes.text() };
    for (const [name, value] of Object.entries(state)) {
      if (value) query.set(name, value);
      else query.delete(name);
    }
    return query;
  }

  free() {
    this.brushes.clear();
    this.draw();
  }

  colours() {
    const field = /** @type {HTMLSelectElement} */ (h("select", { class: "select", "aria-label": t("Colour"), onchange: () => {
      this.colour = field.value;
      this.draw();
    } }, h("option", { value: "" }, t("colour by run"))));
    for (const axis of this.axes) if (axis.kind !== "category") field.append(h("option", { value: axis.name, selected: axis.name === this.colour }, axis.name));
    return field;
  }

  picker() {
    const items = this.axes.map((axis) => {
      const box = /** @type {HTMLInputElement} */ (h("input", { type: "checkbox", checked: this.shown.includes(axis.name), onchange: () => {
        const wanted = new Set(this.shown);
        if (box.checked) wanted.add(axis.name);
        else if (wanted.size > 1) wanted.delete(axis.name);
        box.checked = wanted.has(axis.name);
        if (!box.checked) this.brushes.set(axis.name, null);
        this.shown = this.axes.map((one_) => one_.name).filter((name) => wanted.has(name));
        this.draw();
      } }));
      return h("label", {}, box, h("span", { class: "mono small" }, axis.name));
    });
    return h("details", { class: "menu" }, h("summary", { class: "button button-small" }, t("Axes")), h("div", { class: "menu-items picker" }, ...items));
  }
}

/** The axes drawn at first: those that tell the runs apart, metrics last. @param {Axis[]} axes */
function usual(axes) {
  const metrics = axes.filter((axis) => axis.metric).slice(0, 4);
  return [...axes.filter((axis) => !axis.metric).slice(0, MOST_AXES - metrics.length), ...metrics].map((axis) => axis.name);
}

/** A dot for no value, a cross for what is no number. @param {number} x @param {number|string|null} value */
function mark(x, value) {
  if (value === null) return svg("circle", { class: "parallel-none", cx: x, cy: MISSING, r: 2.5 });
  return svg("path", { class: "parallel-nan", d: `M${x - 4} ${MISSING - 4}l8 8m0 -8l-8 8` });
}

/** @param {number|string|null} value */
function told(value) {
  return value === null ? t("no value") : typeof value === "number" ? number(value) : value;
}
