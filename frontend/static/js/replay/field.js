/** A text of a step: the part of it that is shown, with its marks and images, and the way to the rest. */

import { api } from "../api.js";
import { h, toast } from "../dom.js";
import { t } from "../i18n.js";
import { scrollable } from "../scrolling.js";
import { show } from "./text.js";

/** @typedef {import("./steps.js").Step} Step */
/** @typedef {import("./text.js").Mark} Mark */
/** @typedef {import("./text.js").Embedded} Embedded */
/** @typedef {{first: number, stop: number, text: string, embedded: Embedded[]}} Part from character `first` to `stop` of the whole */

/**
 * @typedef {object} Options
 * @property {string} trajectory
 * @property {(step: number, field: string) => Mark[]} marks
 * @property {(step: number) => number} comments how many there are on a step
 * @property {(step: number) => void} [onComment] absent where nobody may comment
 * @property {Map<string, Part>} opened parts of fields that were opened beyond their cut
 */

const PAGE = 20_000; // characters that are fetched at a time
const MOST = 100_000; // characters that are shown at once: more would make the page slow
const BEFORE = 2_000; // characters shown before a place that is gone to

/** @param {number} count of characters, all digits shown */
const whole = (count) => count.toLocaleString("en").replaceAll(",", "\u202f");

/** @param {Step} step @param {string} name @param {Map<string, Part>} opened @returns {Part} */
function partOf(step, name, opened) {
  const known = opened.get(`${step.index}.${name}`);
  if (known) return known;
  const text = (name === "result" ? step.call?.result : name === "answer" ? step.answer : name === "text" ? step.text : "") ?? "";
  const embedded = step.embedded?.[name] ?? [];
  const hidden = embedded.reduce((sum, one) => sum + one.stop - one.start - 1, 0);
  return { first: 0, stop: [...text].length + hidden, text, embedded };
}

/** @param {string} trajectory @param {number} step @param {string} name @param {number} first @returns {Promise<Part>} */
const fetched = (trajectory, step, name, first) => api(`trajectories/${trajectory}/steps/${step}/field/${name}?from=${first}&count=${PAGE}`);

/**
 * See to it that a place of a field is among what is shown.
 * @param {Step} step
 * @param {string} name
 * @param {number} stop the character after the place
 * @param {Options} options
 */
export async function open(step, name, stop, options) {
  const part = partOf(step, name, options.opened);
  if (!step.more[name] || (stop > part.first && stop <= part.stop)) return;
  options.opened.set(`${step.index}.${name}`, await fetched(options.trajectory, step.index, name, Math.max(0, stop - BEFORE)));
}

/**
 * @param {Step} step
 * @param {string} name
 * @param {string} className
 * @param {Options} options
 */
export function drawField(step, name, className, options) {
  const key = `${step.index}.${name}`;
  const address = (/** @type {Embedded} */ one) => `/api/v1/trajectories/${options.trajectory}/steps/${step.index}/field/${name}/image?at=${one.start}`;
  const pre = scrollable(h("pre", { class: `agent-text ${className}`, "data-field": name, dir: "auto" }));
  const part = () => partOf(step, name, options.opened);
  const draw = () => {
    const { first, text, embedded } = part();
    pre.dataset.first = String(first);
    show(pre, text, options.marks(step.index, name), { first, embedded, address });
  };
  draw();
  const total = step.more[name];
  if (!total) return pre;
  const earlier = h("button", { type: "button", class: "button button-small" });
  const more = h("button", { type: "button", class: "button button-small" });
  const label = () => {
    const { first, stop } = part();
    earlier.textContent = t("Show earlier (from character %(first)s)", { first: whole(first) });
    earlier.hidden = first === 0;
    more.textContent = first
      ? t("Show more (characters %(first)s to %(shown)s of %(total)s)", { first: whole(first), shown: whole(stop), total: whole(total) })
      : t("Show more (%(shown)s of %(total)s characters)", { shown: whole(stop), total: whole(total) });
    more.hidden = stop >= total;
  };
  /** @param {HTMLElement} button @param {() => Promise<Part>} next */
  const press = (button, next) =>
    button.addEventListener("click", async () => {
      button.setAttribute("aria-disabled", "true");
      try {
        options.opened.set(key, await next());
        draw();
      } catch (problem) {
        toast(/** @type {Error} */ (problem).message, "bad");
      }
      button.removeAttribute("aria-disabled");
      label();
    });
  press(earlier, () => fetched(options.trajectory, step.index, name, Math.max(0, part().first - PAGE)));
  press(more, async () => {
    const now = part();
    const next = await fetched(options.trajectory, step.index, name, now.stop);
    return now.text.length >= MOST ? next : joined(now, next);
  });
  label();
  return h("div", {}, h("div", {}, earlier), pre, more);
}

/** @param {Part} a @param {Part} b which begins where the other ends @returns {Part} */
function joined(a, b) {
  const length = [...a.text].length;
  const moved = b.embedded.map((one) => ({ ...one, at: one.at + length }));
  return { first: a.first, stop: b.stop, text: a.text + b.text, embedded: [...a.embedded, ...moved] };
}
