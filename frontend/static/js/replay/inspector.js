/** Beside the transcript: numbers of the selected step, its tokens, and what the model saw. */

import { api } from "../api.js";
import { all, h, one } from "../dom.js";
import { number, shortTime } from "../format.js";
import { t } from "../i18n.js";
import { visible } from "./text.js";
import { drawTokens } from "./tokens.js";

const SETTLE_MS = 60;

/** @typedef {import("./steps.js").Steps} Steps */
/** @typedef {{by: "policy" | "environment", trained: boolean, start: number, stop: number, ids: number[], text: string | null}} Span */

export class Inspector {
  /**
   * @param {HTMLElement} root holds `[role=tab]` buttons and `[role=tabpanel]` boxes
   * @param {Steps} steps
   */
  constructor(root, steps) {
    this.root = root;
    this.steps = steps;
    this.step = 0;
    this.asked = 0;
    this.timer = 0;
    this.colouring = /** @type {HTMLSelectElement} */ (one("[data-colouring]", root));
    this.record = /** @type {HTMLSelectElement} */ (one("[data-record]", root));
    this.showIds = /** @type {HTMLInputElement} */ (one("[data-show-ids]", root));
    this.tabs = all("[role=tab]", root);
    for (const tab of this.tabs) {
      tab.addEventListener("click", () => this.open(tab.dataset.tab || ""));
      tab.addEventListener("keydown", (event) => this.#walk(event));
    }
    this.colouring.addEventListener("change", () => this.#load());
    this.record.addEventListener("change", () => this.#load());
    this.showIds.addEventListener("change", () => this.#load());
  }

  /** @param {string} name of a tab */
  open(name) {
    for (const tab of this.tabs) {
      const chosen = tab.dataset.tab === name;
      tab.setAttribute("aria-selected", String(chosen));
      tab.tabIndex = chosen ? 0 : -1;
      this.panel(tab.dataset.tab || "").hidden = !chosen;
    }
    this.#load();
  }

  get current() {
    return this.tabs.find((tab) => tab.getAttribute("aria-selected") === "true")?.dataset.tab;
  }

  /** @param {string} name @returns {HTMLElement} */
  panel(name) {
    return /** @type {HTMLElement} */ (one(`[data-panel="${name}"]`, this.root));
  }

  /** @param {number} step */
  select(step) {
    this.step = step;
    clearTimeout(this.timer); // a held key passes many steps: only where it stops is loaded
    this.timer = window.setTimeout(() => this.#load(), SETTLE_MS);
  }

  async #load() {
    const tab = this.current;
    const load = tab === "step" ? this.#drawStep : tab === "tokens" ? this.#drawTokens : tab === "context" ? this.#drawContext : null;
    if (!load || !this.steps.count) return;
    const box = /** @type {HTMLElement} */ (one("[data-body]", this.panel(tab || "")));
    this.asked += 1;
    const asked = this.asked;
    box.setAttribute("aria-busy", "true");
    try {
      await load.call(this, box, () => asked === this.asked);
    } catch (problem) {
      if (asked === this.asked) box.replaceChildren(h("p", { class: "error-text" }, /** @type {Error} */ (problem).message));
    }
    if (asked === this.asked) box.removeAttribute("aria-busy");
  }

  /** @param {HTMLElement} box @param {() => boolean} current */
  async #drawStep(box, current) {
    const step = await this.steps.whole(this.step);
    if (!current()) return;
    const sampled = step.stop - step.start;
    const drawn = step.tokens.filter((token) => token.version >= 0);
    const sum = drawn.reduce((total, token) => total + token.logprob, 0);
    const masked = step.tokens.filter((token) => !token.trained).length;
    const rows = /** @type {[string, string][]} */ ([
      [t("Step"), t("%(n)s (%(count)s in all, from 0)", { n: step.index, count: this.steps.count })],
      [t("Tokens"), number(sampled)],
      [t("Mean log-probability"), drawn.length ? number(sum / drawn.length) : "–"],
      [t("Masked tokens"), number(masked)],
      [t("Policy version"), range(drawn.map((token) => token.version))],
      [t("Tokens in segment"), `${step.segment}: ${step.start}–${step.stop}`],
      [t("Step reward"), number(step.reward)],
      [t("Tool call"), step.call ? `${step.call.name}, ${shortTime(step.call.duration_s)}` : "–"],
      [t("Call id"), step.call?.id || "–"],
      [t("Error"), step.call?.error || t("none")],
    ]);
    box.replaceChildren(facts(rows));
  }

  /** @param {HTMLElement} box @param {() => boolean} current */
  async #drawTokens(box, current) {
    const [step, trained] = await Promise.all([this.steps.whole(this.step), this.steps.trained(this.step, Number(this.record.value || 0))]);
    if (!current()) return;
    this.#offerRecords(trained);
    if (!step.tokens.length) {
      box.replaceChildren(h("p", { class: "muted" }, t("The policy sampled no tokens in this step.")));
      return;
    }
    drawTokens(box, step.tokens, trained, this.colouring.value);
    if (step.more.tokens) {
      box.append(h("p", { class: "small muted" }, t("The first %(shown)s of %(total)s tokens.", { shown: step.tokens.length, total: step.more.tokens })));
    }
  }

  /** A choice where several trainer steps had the trajectory. @param {import("./steps.js").TrainedStep} trained */
  #offerRecords(trained) {
    const chosen = String(trained.record ?? 0);
    this.record.replaceChildren(
      ...trained.records.map((one, index) => h("option", { value: index }, t("trainer step %(step)s, attempt %(attempt)s", { step: one.step, attempt: one.attempt }))),
    );
    this.record.value = chosen;
    /** @type {HTMLElement} */ (this.record.closest("label")).hidden = trained.records.length < 2;
  }

  /** @param {HTMLElement} box @param {() => boolean} current */
  async #drawContext(box, current) {
    const path = `trajectories/${this.steps.trajectory}/context?step=${this.step}`;
    const page = await api(path);
    if (!current()) return;
    const about = h("p", { class: "small muted" });
    about.textContent = page.total === 0 ? t("No tokens were recorded.") : t("%(total)s tokens of segment %(segment)s, exactly as the model read them before step %(step)s.", page);
    const flow = h("div", { class: "context agent-text", dir: "auto" });
    const earlier = h("button", { type: "button", class: "button button-small" });
    let first = page.first;
    const label = () => {
      earlier.textContent = t("Show earlier (%(n)s tokens)", { n: number(first) });
      earlier.hidden = first === 0;
    };
    earlier.addEventListener("click", async () => {
      const before = await api(`${path}&before=${first}`);
      first = before.first;
      flow.prepend(...this.#spans(before.spans));
      label();
    });
    flow.append(...this.#spans(page.spans));
    label();
    const parts = [about, earlier, flow];
    if (page.parent !== null) {
      parts.splice(1, 0, h("p", { class: "small muted" }, t("The context was edited before this step: the segment forks from segment %(n)s.", { n: page.parent })));
    }
    box.replaceChildren(...parts);
  }

  /** @param {Span[]} spans @returns {HTMLElement[]} */
  #spans(spans) {
    return spans.map((span) => {
      const by = span.by === "policy" ? (span.trained ? "policy" : "masked") : "environment";
      const title = t("tokens %(start)s to %(stop)s, %(by)s", { start: span.start, stop: span.stop, by: WRITERS[by]() });
      const node = h("span", { class: `context-${by}`, title });
      if (this.showIds.checked || span.text === null) node.textContent = `${span.ids.join(" ")} `;
      else node.append(visible(span.text));
      return node;
    });
  }

  /** Arrow keys walk the tabs. @param {KeyboardEvent} event */
  #walk(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    const at = this.tabs.findIndex((tab) => tab === event.target);
    const next = this.tabs[(at + by + this.tabs.length) % this.tabs.length];
    next.focus();
    next.click();
  }
}

const WRITERS = {
  policy: () => t("sampled by the policy, trained on"),
  masked: () => t("sampled by the policy, masked"),
  environment: () => t("written by the environment"),
};

/** @param {[string, string][]} rows */
function facts(rows) {
  const list = h("dl", { class: "facts" });
  for (const [name, value] of rows) {
    const text = h("dd", {});
    text.append(visible(value));
    list.append(h("dt", {}, name), text);
  }
  return list;
}

/** @param {number[]} versions */
function range(versions) {
  if (!versions.length) return "–";
  const low = Math.min(...versions);
  const high = Math.max(...versions);
  return low === high ? String(low) : `${low}–${high}`;
}
