/** All steps of a trajectory as a strip: height is the call's duration, colour what happened. */

import { shortTime } from "../format.js";
import { t } from "../i18n.js";

/** @typedef {import("./steps.js").Outline} Outline */

/** From the bottom up where several steps share a pixel. */
const KINDS = /** @type {const} */ (["error", "detour", "answer", "call", "text"]);
const MARK = 5; // pixels kept free above for comment marks

/** @param {Outline} outline @param {number} step @returns {typeof KINDS[number]} */
function kindOf(outline, step) {
  if (outline.error[step] >= 0) return "error";
  if (outline.answer[step]) return "answer";
  if (outline.detour[step]) return "detour";
  return outline.tool[step] >= 0 ? "call" : "text";
}

/** @param {Outline} outline @param {number} step */
function describeStep(outline, step) {
  const parts = [t("Step %(n)s", { n: step })];
  if (outline.tools[outline.tool[step]]) parts.push(outline.tools[outline.tool[step]]);
  if (outline.error[step] >= 0) parts.push(outline.errors[outline.error[step]]);
  if (outline.answer[step]) parts.push(t("answer"));
  if (outline.detour[step]) parts.push(t("forced detour"));
  parts.push(t("%(n)s tokens", { n: outline.tokens[step] }));
  if (outline.duration_s[step] !== null) parts.push(shortTime(outline.duration_s[step]));
  return parts.join(" · ");
}

/** The colour of a kind in the present theme; a canvas knows no custom properties. @param {Element} legend @param {string} kind */
function legendColour(legend, kind) {
  const swatch = legend.querySelector(`.timeline-${kind}`);
  return swatch ? getComputedStyle(swatch).backgroundColor : "";
}

export class Timeline {
  /**
   * @param {HTMLCanvasElement} canvas
   * @param {Element} caption shows the step under the pointer
   * @param {Element} legend names the colours, see `legendColour`
   * @param {Outline} outline
   * @param {(step: number) => void} onChoose
   */
  constructor(canvas, caption, legend, outline, onChoose) {
    this.canvas = canvas;
    this.caption = caption;
    this.legend = legend;
    this.outline = outline;
    this.onChoose = onChoose;
    this.count = outline.tool.length;
    this.selected = 0;
    /** @type {Set<number>} */
    this.commented = new Set();
    this.longest = outline.duration_s.reduce((/** @type {number} */ most, s) => Math.max(most, s ?? 0), 1e-6);
    canvas.setAttribute("aria-valuemin", "0");
    canvas.setAttribute("aria-valuemax", String(Math.max(0, this.count - 1)));
    canvas.addEventListener("pointermove", (event) => this.#tell(this.#stepAt(event)));
    canvas.addEventListener("pointerleave", () => this.#tell(this.selected));
    canvas.addEventListener("click", (event) => this.onChoose(this.#stepAt(event)));
    canvas.addEventListener("keydown", (event) => this.#key(event));
    document.addEventListener("themechange", () => this.draw());
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  /** @param {number} step */
  select(step) {
    this.selected = step;
    this.canvas.setAttribute("aria-valuenow", String(step));
    this.canvas.setAttribute("aria-valuetext", describeStep(this.outline, step));
    this.#tell(step);
    this.draw();
  }

  draw() {
    const ratio = window.devicePixelRatio || 1;
    const { clientWidth: width, clientHeight: height } = this.canvas;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    const paper = this.canvas.getContext("2d");
    if (!paper || !this.count) return;
    paper.scale(ratio, ratio);
    const ink = getComputedStyle(this.canvas).color;
    const colours = KINDS.map((kind) => legendColour(this.legend, kind));
    const each = width / this.count;
    const gap = each >= 4 ? 1 : 0;
    /** @type {Map<number, {counts: number[], share: number}>} by pixel where steps are narrower than one */
    const columns = new Map();
    for (let step = 0; step < this.count; step += 1) {
      const x = each >= 1 ? step : Math.floor(step * each);
      const column = columns.get(x) ?? { counts: KINDS.map(() => 0), share: 0 };
      column.counts[KINDS.indexOf(kindOf(this.outline, step))] += 1;
      column.share = Math.max(column.share, Math.sqrt((this.outline.duration_s[step] ?? 0) / this.longest));
      columns.set(x, column);
    }
    const wide = Math.max(1, each);
    for (const [x, { counts, share }] of columns) {
      const tall = 6 + share * (height - MARK - 6);
      const all = counts.reduce((sum, count) => sum + count, 0);
      let below = height;
      counts.forEach((count, rank) => {
        const part = (tall * count) / all;
        paper.fillStyle = colours[rank];
        paper.fillRect(x * wide, below - part, wide - gap, part);
        below -= part;
      });
    }
    paper.fillStyle = ink;
    for (const step of this.commented) paper.fillRect((step + 0.5) * each - 1.5, 0, 3, 3);
    paper.strokeStyle = ink;
    paper.lineWidth = 2;
    paper.strokeRect(Math.min(this.selected * each, width - 3), MARK, Math.max(3, each) - gap, height - MARK - 1);
  }

  /** @param {MouseEvent} event */
  #stepAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const share = (event.clientX - box.left) / box.width;
    return Math.min(this.count - 1, Math.max(0, Math.floor(share * this.count)));
  }

  /** @param {number} step */
  #tell(step) {
    if (this.count) this.caption.textContent = describeStep(this.outline, step);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const moves = /** @type {Record<string, number>} */ ({
      ArrowRight: 1,
      ArrowLeft: -1,
      PageDown: 10,
      PageUp: -10,
      Home: -this.count,
      End: this.count,
    });
    const by = moves[event.key];
    if (by === undefined || !this.count) return;
    event.preventDefault();
    this.onChoose(Math.min(this.count - 1, Math.max(0, this.selected + by)));
  }
}
