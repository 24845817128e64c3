/** One step of a transcript: what the policy wrote, the tool call it made, and what came back. */

import { api } from "../api.js";
import { h, toast } from "../dom.js";
import { number, shortTime } from "../format.js";
import { t } from "../i18n.js";
import { show, visible } from "./text.js";

/** @typedef {import("./steps.js").Step} Step */
/** @typedef {import("./text.js").Mark} Mark */

/**
 * @typedef {object} Options
 * @property {string} trajectory
 * @property {(step: number, field: string) => Mark[]} marks
 * @property {(step: number) => number} comments how many there are on a step
 * @property {(step: number) => void} [onComment] absent where nobody may comment
 * @property {Map<string, string>} opened text of fields that were opened beyond their cut
 */

/**
 * @param {number} index
 * @param {Step | undefined} step undefined while it is on its way
 * @param {Options} options
 * @returns {HTMLElement}
 */
export function drawStep(index, step, options) {
  const card = h("article", { class: "step", "data-step": index, "aria-label": t("Step %(n)s", { n: index }) });
  if (!step) {
    card.append(h("div", { class: "step-head" }, numberLink(index)), h("div", { class: "skeleton" }));
    return card;
  }
  card.append(head(step, options));
  if (step.text) card.append(field(step, "text", step.text, "step-text", options));
  if (step.call) card.append(drawCall(step, step.call, options));
  if (step.answer !== null) {
    const text = h("strong", {});
    show(text, step.answer);
    card.append(h("p", { class: "step-answer" }, t("Answer"), " ", text));
  }
  return card;
}

/** @param {number} index */
function numberLink(index) {
  return h("a", { class: "step-number", href: `#step=${index}`, title: t("Link to this step") }, String(index));
}

/** @param {Step} step @param {Options} options */
function head(step, options) {
  const row = h("div", { class: "step-head" }, numberLink(step.index));
  if (step.call?.error) row.append(badge(`✕ ${step.call.error}`, "bad"));
  if (step.detour) row.append(badge(t("forced detour, not trained"), "warn"));
  if (step.reward !== null) row.append(badge(t("reward %(value)s", { value: number(step.reward) }), "accent"));
  const comments = options.comments(step.index);
  if (comments) row.append(badge(t("%(n)s comments", { n: comments }), "accent"));
  const side = h("span", { class: "step-side" });
  if (step.call) side.append(h("span", { class: "faint", title: t("Duration of the tool call") }, shortTime(step.call.duration_s)));
  const comment = options.onComment;
  if (comment) {
    const button = h("button", { type: "button", class: "button button-quiet button-small" }, t("Comment"));
    button.addEventListener("mousedown", (event) => event.preventDefault()); // keeps the selection
    button.addEventListener("click", () => comment(step.index));
    side.append(button);
  }
  row.append(side);
  return row;
}

/** @param {number} count of characters, all digits shown */
const whole = (count) => count.toLocaleString("en").replaceAll(",", "\u202f");

/** @param {string} text @param {"bad"|"warn"|"good"|"accent"} tone */
function badge(text, tone) {
  const node = h("span", { class: `badge badge-${tone}` });
  node.append(visible(text));
  return node;
}

/**
 * @param {Step} step
 * @param {import("./steps.js").Call} call
 * @param {Options} options
 */
function drawCall(step, call, options) {
  const name = h("span", { class: "call-name mono" });
  name.append(visible(call.name || t("(no tool named)")));
  const box = h("div", { class: call.error ? "call call-failed" : "call" }, h("div", { class: "call-head" }, name));
  if (step.more.arguments) box.append(field(step, "arguments", "", "call-value", options));
  else if (call.arguments === null) box.append(h("p", { class: "muted small" }, t("The arguments could not be parsed.")));
  else box.append(argumentList(call.arguments));
  if (call.result || step.more.result) {
    box.append(h("div", { class: "label" }, call.error ? t("Error message") : t("Result")));
    box.append(field(step, "result", call.result, "call-result", options));
  } else {
    box.append(h("p", { class: "muted small" }, t("It returned nothing.")));
  }
  return box;
}

/** @param {Record<string, any>} values */
function argumentList(values) {
  const list = h("dl", { class: "call-arguments" });
  for (const [name, value] of Object.entries(values)) {
    const key = h("dt", {});
    const text = h("dd", { class: "mono" });
    key.append(visible(name));
    text.append(visible(typeof value === "string" ? value : JSON.stringify(value)));
    list.append(key, text);
  }
  if (!list.children.length) return h("p", { class: "muted small" }, t("No arguments."));
  return list;
}

/**
 * A field with its marks; where it was cut, a button that brings more of it.
 * @param {Step} step
 * @param {string} name
 * @param {string} text
 * @param {string} className
 * @param {Options} options
 */
function field(step, name, text, className, options) {
  const key = `${step.index}.${name}`;
  const pre = h("pre", { class: `agent-text ${className}`, "data-field": name, dir: "auto" });
  const draw = () => show(pre, options.opened.get(key) ?? text, options.marks(step.index, name));
  draw();
  const total = step.more[name];
  if (!total) return pre;
  const shown = () => [...(options.opened.get(key) ?? text)].length;
  const button = h("button", { type: "button", class: "button button-small" });
  const label = () => {
    button.textContent = t("Show more (%(shown)s of %(total)s characters)", { shown: whole(shown()), total: whole(total) });
    button.hidden = shown() >= total;
  };
  button.addEventListener("click", async () => {
    button.setAttribute("aria-disabled", "true");
    try {
      const part = await api(`trajectories/${options.trajectory}/steps/${step.index}/field/${name}?from=${shown()}`);
      options.opened.set(key, (options.opened.get(key) ?? text) + part.text);
      draw();
    } catch (problem) {
      toast(/** @type {Error} */ (problem).message, "bad");
    }
    button.removeAttribute("aria-disabled");
    label();
  });
  label();
  return h("div", {}, pre, button);
}
