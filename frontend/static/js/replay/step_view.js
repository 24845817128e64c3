/** One step of a transcript: what the policy wrote, the tool call it made, and what came back. */

import { h } from "../dom.js";
import { number, shortTime } from "../format.js";
import { t } from "../i18n.js";
import { drawField } from "./field.js";
import { visible } from "./text.js";

/** @typedef {import("./steps.js").Step} Step */
/** @typedef {import("./text.js").Mark} Mark */
/** @typedef {import("./field.js").Options} Options */

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
  if (step.text) card.append(drawField(step, "text", "step-text", options));
  if (step.call) card.append(drawCall(step, step.call, options));
  if (step.answer !== null) {
    const answer = drawField(step, "answer", "step-answer-text", options);
    card.append(h("div", { class: "step-answer" }, h("div", { class: "label" }, t("Answer")), answer));
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
  if (step.more.arguments) box.append(drawField(step, "arguments", "call-value", options));
  else if (call.arguments === null) box.append(h("p", { class: "muted small" }, t("The arguments could not be parsed.")));
  else box.append(argumentList(call.arguments));
  if (call.result || step.more.result) {
    box.append(h("div", { class: "label" }, call.error ? t("Error message") : t("Result")));
    box.append(drawField(step, "result", "call-result", options));
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
