/** Marks on steps while reviewing: good, neutral, bad, with a note. Sent at once; what cannot be sent
 * is kept in this browser and tried again. */

import { api } from "../api.js";
import { h, one } from "../dom.js";
import { t } from "../i18n.js";

const RETRY_MS = 5_000;

/** @typedef {{step: number, mark: string, note: string}} Mark */

const SIGNS = /** @type {Record<string, string>} */ ({ good: "✓", neutral: "·", bad: "✕" });
const TONES = /** @type {Record<string, string>} */ ({ good: "badge badge-good", neutral: "badge", bad: "badge badge-bad" });

export class Marks {
  /**
   * @param {HTMLElement} box
   * @param {{item: string, marks: Mark[]}} page
   * @param {(problem: string) => void} onProblem
   */
  constructor(box, page, onProblem) {
    this.box = box;
    this.item = page.item;
    this.onProblem = onProblem;
    /** @type {Map<number, Mark>} */
    this.all = new Map(page.marks.map((mark) => [mark.step, mark]));
    this.kept = `caravan-marks-${page.item}`;
    /** What the server does not know yet; null: the mark is taken away. @type {Map<number, Mark | null>} */
    this.unsent = new Map(JSON.parse(localStorage.getItem(this.kept) || "[]"));
    for (const [step, mark] of this.unsent) this.#set(step, mark);
    this.lead = [...box.childNodes];
    this.#draw();
    setInterval(() => this.unsent.forEach((mark, step) => this.#send(step, mark)), RETRY_MS);
  }

  /** @param {number} step @param {Mark | null | undefined} mark */
  #set(step, mark) {
    if (mark) this.all.set(step, mark);
    else this.all.delete(step);
  }

  /** The step that the replay shows, as its address says. */
  get step() {
    return Number(new URLSearchParams(location.hash.slice(1)).get("step") || 0);
  }

  /** @returns {Record<string, () => boolean>} */
  keys() {
    return {
      "+": () => this.#toggle("good"),
      "=": () => this.#toggle("good"),
      ".": () => this.#toggle("neutral"),
      "-": () => this.#toggle("bad"),
      ",": () => {
        const note = /** @type {HTMLElement | null} */ (one(`[data-mark="${this.step}"] input`, this.box));
        note?.focus();
        return Boolean(note);
      },
    };
  }

  /** @param {string} mark */
  #toggle(mark) {
    const step = this.step;
    const known = this.all.get(step);
    if (known?.mark === mark) this.#send(step, null);
    else this.#send(step, { step, mark, note: known?.note ?? "" });
    return true;
  }

  /** @param {number} step @param {Mark | null} mark null: take it away */
  async #send(step, mark) {
    const before = this.all.get(step);
    const news = !this.unsent.has(step);
    this.#set(step, mark);
    this.unsent.set(step, mark);
    this.#keep();
    const path = `queue-items/${this.item}/marks/${step}`;
    try {
      await api(path, mark ? { method: "PUT", body: { mark: mark.mark, note: mark.note } } : { method: "DELETE" });
    } catch (problem) {
      const { status, message } = /** @type {import("../api.js").Problem} */ (problem);
      if (status === 0 || status >= 502) {
        if (news) this.onProblem(t("The server cannot be reached. The mark is kept in this browser and is sent as soon as it answers."));
        return;
      }
      this.#set(step, before);
      this.onProblem(message);
    }
    if (this.unsent.get(step) === mark) this.unsent.delete(step);
    this.#keep();
  }

  #keep() {
    localStorage.setItem(this.kept, JSON.stringify([...this.unsent]));
    if (!this.unsent.size) localStorage.removeItem(this.kept);
    this.#draw();
  }

  #draw() {
    if (this.box.contains(document.activeElement) && document.activeElement?.matches("input")) return; // being written
    const marks = [...this.all.values()].sort((a, b) => a.step - b.step);
    this.box.replaceChildren(...this.lead, ...marks.map((mark) => this.#chip(mark)));
  }

  /** @param {Mark} mark */
  #chip(mark) {
    const note = /** @type {HTMLInputElement} */ (
      h("input", { class: "input medium", maxlength: 2000, placeholder: t("Note"), "aria-label": t("Note on step %(step)s", { step: mark.step }) })
    );
    note.value = mark.note;
    note.addEventListener("change", () => this.#send(mark.step, { ...mark, note: note.value }));
    note.addEventListener("keydown", (event) => event.key === "Enter" && note.blur());
    const off = h("button", { type: "button", class: "button button-quiet button-small", "aria-label": t("Take the mark off step %(step)s", { step: mark.step }) }, "×");
    off.addEventListener("click", () => this.#send(mark.step, null));
    return h(
      "span",
      { class: "row", "data-mark": mark.step },
      h("a", { class: TONES[mark.mark], href: `#step=${mark.step}` }, `${SIGNS[mark.mark]} ${t("step %(step)s", { step: mark.step })}`),
      note,
      off,
    );
  }
}
