/** The tokens of one step of two trajectories, side by side and coloured alike. */

import { all, h, one } from "../dom.js";
import { t } from "../i18n.js";
import { drawTokens } from "./tokens.js";

const SETTLE_MS = 60;

export class CompareTokens {
  /**
   * @param {HTMLDetailsElement} root holds the choice of colouring and a box for each side
   * @param {import("./steps.js").Steps[]} sides
   */
  constructor(root, sides) {
    this.root = root;
    this.sides = sides;
    this.boxes = all("[data-side]", root);
    this.colouring = /** @type {HTMLSelectElement} */ (one("[data-colouring]", root));
    this.step = 0;
    this.timer = 0;
    root.addEventListener("toggle", () => this.#load());
    this.colouring.addEventListener("change", () => this.#load());
  }

  /** @param {number} step */
  show(step) {
    this.step = step;
    /** @type {HTMLElement} */ (one("[data-about]", this.root)).textContent = t("step %(n)s", { n: step });
    clearTimeout(this.timer); // a held key passes many steps: only where it stops is loaded
    this.timer = window.setTimeout(() => this.#load(), SETTLE_MS);
  }

  async #load() {
    if (!this.root.open) return;
    await Promise.all(this.sides.map((steps, side) => this.#draw(steps, this.boxes[side], this.step)));
  }

  /** @param {import("./steps.js").Steps} steps @param {HTMLElement} box @param {number} step */
  async #draw(steps, box, step) {
    if (step >= steps.count) {
      box.replaceChildren(h("p", { class: "muted" }, t("ended before this step")));
      return;
    }
    try {
      const [whole, trained] = await Promise.all([steps.whole(step), steps.trained(step)]);
      if (step === this.step) drawTokens(box, whole.tokens, trained, this.colouring.value);
    } catch (problem) {
      box.replaceChildren(h("p", { class: "error-text" }, /** @type {Error} */ (problem).message));
    }
  }
}
