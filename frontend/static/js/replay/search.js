/** Search inside a trajectory: the server looks through every step, the page shows where. */

import { api } from "../api.js";
import { h } from "../dom.js";
import { t } from "../i18n.js";
import { visible } from "./text.js";

const WAIT_MS = 250;

/** @typedef {{step: number | null, field: string, start: number, stop: number, before: string, match: string, after: string}} Match */

export class Search {
  /**
   * @param {HTMLInputElement} input
   * @param {HTMLElement} box where the matches are listed
   * @param {{trajectory: string, onGo: (match: Match) => void, onFound: () => void}} options
   */
  constructor(input, box, options) {
    this.input = input;
    this.box = box;
    this.options = options;
    /** @type {Match[]} */
    this.matches = [];
    this.at = -1;
    /** @type {AbortController | null} */
    this.running = null;
    let timer = 0;
    input.addEventListener("input", () => {
      clearTimeout(timer);
      timer = window.setTimeout(() => this.find(), WAIT_MS);
    });
    input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.isComposing) return; // Enter also ends the input of a Chinese word
      event.preventDefault();
      this.step(event.shiftKey ? -1 : 1);
    });
    if (input.value) this.find(); // typed before this was ready, or kept by the browser
  }

  /** @param {number} step @param {string} field @returns {import("./text.js").Mark[]} */
  marks(step, field) {
    return this.matches
      .filter((match) => match.step === step && match.field === field)
      .map((match) => ({ start: match.start, stop: match.stop, class: match === this.matches[this.at] ? "found current" : "found" }));
  }

  async find() {
    this.running?.abort();
    const query = this.input.value;
    this.matches = [];
    this.at = -1;
    if (!query.trim()) {
      this.box.replaceChildren();
      this.options.onFound();
      return;
    }
    const running = new AbortController();
    this.running = running;
    this.box.setAttribute("aria-busy", "true");
    try {
      const path = `trajectories/${this.options.trajectory}/search?q=${encodeURIComponent(query)}`;
      const answer = await api(path, { signal: running.signal });
      this.matches = answer.matches;
      this.#list(answer.complete);
      this.options.onFound();
    } catch (problem) {
      if (!running.signal.aborted) this.box.replaceChildren(h("p", { class: "error-text" }, /** @type {Error} */ (problem).message));
    }
    if (this.running === running) this.box.removeAttribute("aria-busy");
  }

  /** Go to the next or previous match. @param {number} by */
  step(by) {
    if (!this.matches.length) return;
    this.at = (this.at + by + this.matches.length) % this.matches.length;
    this.box.querySelectorAll("li").forEach((item, i) => item.toggleAttribute("data-current", i === this.at));
    this.options.onGo(this.matches[this.at]);
  }

  /** @param {boolean} complete */
  #list(complete) {
    const count = complete ? String(this.matches.length) : t("more than %(n)s", { n: this.matches.length });
    const list = h("ol", { class: "matches" });
    this.matches.forEach((match, index) => {
      const mark = h("mark", { class: "found" });
      mark.append(visible(match.match));
      const text = h("span", { class: "agent-text" });
      text.append(visible(match.before), mark, visible(match.after));
      const where = match.step === null ? t("prompt") : `${match.step} ${match.field}`;
      const go = h("button", { type: "button", class: "match" }, h("span", { class: "faint" }, where), " ", text);
      go.addEventListener("click", () => {
        this.at = index - 1;
        this.step(1);
      });
      list.append(h("li", {}, go));
    });
    this.box.replaceChildren(h("p", { class: "small muted", role: "status" }, t("Matches: %(n)s", { n: count })), list);
  }
}
