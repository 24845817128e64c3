/** Brushes on the axes of parallel coordinates: a span by pointer, its two ends by key. */

import { svg } from "../dom.js";
import { t } from "../i18n.js";

/** @typedef {import("./scale.js").Axis} Axis @typedef {import("./scale.js").Scale} Scale */

const HALF = 14; // px on both sides of an axis in which it is dragged
const CLICK = 0.015; // a shorter span is a click, which frees the axis
const STEP = 0.05; // of the axis, by arrow key where values are many
const MANY = 25;
const DIGITS = 6; // of a share in the address
const NEAR = 1e-6; // more than these digits round off: a run at the end of a span stays in it

export class Brushes {
  /** @param {string} text as `text()` gives it @param {Set<string>} names of the axes */
  constructor(text, names) {
    /** @type {Map<string, [number, number]>} shares of the axis, from below */
    this.spans = new Map();
    for (const part of text.split(";")) {
      const match = /^(.*):(\d*\.?\d+):(\d*\.?\d+)$/.exec(part);
      if (match && names.has(match[1]) && Number(match[2]) <= Number(match[3])) this.spans.set(match[1], [Number(match[2]), Number(match[3])]);
    }
  }

  get size() {
    return this.spans.size;
  }

  text() {
    return [...this.spans].map(([name, [low, high]]) => `${name}:${Number(low.toFixed(DIGITS))}:${Number(high.toFixed(DIGITS))}`).join(";");
  }

  clear() {
    this.spans.clear();
  }

  /** @param {string} name @param {[number, number] | null} span */
  set(name, span) {
    if (span && (span[0] > 0 || span[1] < 1)) this.spans.set(name, span);
    else this.spans.delete(name);
  }

  /** Whether a run lies within every brush; without a value it lies in none. @param {(name: string) => number|null} at */
  keep(at) {
    for (const [name, [low, high]] of this.spans) {
      const share = at(name);
      if (share === null || share < low - NEAR || share > high + NEAR) return false;
    }
    return true;
  }

  /**
   * What is drawn over an axis: the place to drag, the span, and a handle at each end.
   * @param {Axis} axis
   * @param {Scale} scale
   * @param {number} x
   * @param {{top: number, bottom: number}} ends
   * @param {() => void} changed
   * @returns {SVGElement[]}
   */
  controls(axis, scale, x, ends, changed) {
    const length = ends.bottom - ends.top;
    const y = (/** @type {number} */ share) => ends.bottom - share * length;
    const span = () => this.spans.get(axis.name) || /** @type {[number, number]} */ ([0, 1]);
    const shade = svg("rect", { class: "parallel-brush", x: x - HALF, width: 2 * HALF });
    const handles = [0, 1].map((end) => svg("rect", { class: "parallel-handle", x: x - 8, width: 16, height: 7, rx: 2, tabindex: 0, role: "slider", "aria-orientation": "vertical", "aria-valuemin": 0, "aria-valuemax": 100, "aria-label": end ? t("Upper end of %(axis)s", { axis: axis.label }) : t("Lower end of %(axis)s", { axis: axis.label }) }));
    const place = () => {
      const [low, high] = span();
      shade.setAttribute("y", String(y(high)));
      shade.setAttribute("height", this.spans.has(axis.name) ? String(Math.max(1, y(low) - y(high))) : "0");
      [low, high].forEach((share, end) => {
        handles[end].setAttribute("y", String(y(share) - (end ? 7 : 0)));
        handles[end].setAttribute("aria-valuenow", String(Math.round(100 * share)));
      });
    };
    const put = (/** @type {[number, number] | null} */ wanted) => {
      this.set(axis.name, wanted);
      place();
      changed();
    };
    const band = svg("rect", { class: "parallel-band", x: x - HALF, y: ends.top, width: 2 * HALF, height: length });
    drag(band, (from, to) => put(Math.abs(to - from) < CLICK ? null : [Math.min(from, to), Math.max(from, to)]));
    handles.forEach((handle, end) => {
      drag(handle, (_, to) => put(end ? [Math.min(span()[0], to), to] : [to, Math.max(span()[1], to)]), band);
      handle.addEventListener("keydown", (event) => {
        const key = /** @type {KeyboardEvent} */ (event).key;
        const wanted = key === "Escape" ? null : moved(span(), end, key, scale.steps);
        if (wanted === undefined) return;
        event.preventDefault();
        event.stopPropagation();
        put(wanted);
      });
    });
    place();
    return [shade, band, ...handles];
  }
}

/**
 * The span after a key at one of its ends; undefined for a key that moves nothing. Of few values
 * the end goes from one to the next.
 * @param {[number, number]} span
 * @param {number} end 0: the lower one
 * @param {string} key
 * @param {number[]} steps places of the values
 * @returns {[number, number] | undefined}
 */
function moved(span, end, key, steps) {
  const now = span[end];
  const few = steps.length <= MANY;
  /** @type {number | undefined} */
  let next;
  if (key === "ArrowUp") next = few ? steps.find((step) => step > now + NEAR) ?? 1 : Math.min(1, now + STEP);
  if (key === "ArrowDown") next = few ? [...steps].reverse().find((step) => step < now - NEAR) ?? 0 : Math.max(0, now - STEP);
  if (key === "Home") next = 0;
  if (key === "End") next = 1;
  if (next === undefined) return undefined;
  return end ? [Math.min(span[0], next), next] : [next, Math.max(span[1], next)];
}

/**
 * Report the shares at which a drag began and is now.
 * @param {SVGElement} on
 * @param {(from: number, to: number) => void} report
 * @param {SVGElement} [along] the element that is as long as the axis; by default the one dragged
 */
function drag(on, report, along = on) {
  const share = (/** @type {PointerEvent} */ event) => {
    const box = along.getBoundingClientRect();
    return Math.min(1, Math.max(0, (box.bottom - event.clientY) / Math.max(1, box.height)));
  };
  on.addEventListener("pointerdown", (first) => {
    const from = share(first);
    on.setPointerCapture(first.pointerId);
    const move = (/** @type {PointerEvent} */ event) => report(from, share(event));
    const end = () => {
      on.removeEventListener("pointermove", move);
      on.removeEventListener("pointerup", up);
      on.removeEventListener("pointercancel", end);
    };
    const up = (/** @type {PointerEvent} */ event) => {
      report(from, share(event));
      end();
    };
    on.addEventListener("pointermove", move);
    on.addEventListener("pointerup", up);
    on.addEventListener("pointercancel", end);
  });
}
