/** The tokens of a step, coloured by a number of theirs; a character that spans tokens stays whole. */

import { h } from "../dom.js";
import { number, percent } from "../format.js";
import { t } from "../i18n.js";
import { colouringOf, sawOf } from "./colourings.js";
import { show } from "./text.js";

/** @typedef {import("./steps.js").Token} Token */
/** @typedef {import("./steps.js").TrainedStep} TrainedStep */
/** @typedef {import("./colourings.js").Group} Group */
/** @typedef {import("./colourings.js").Saw} Saw */

/** Why a step that had the trajectory in its batch did not train on it. */
const LEFT_OUT = {
  invalid_reward: () => t("Its reward is invalid."),
  no_tokens: () => t("None of its tokens is trained on."),
  truncated: () => t("It was cut short, and the stage keeps such trajectories out of the loss."),
  no_advantage: () => t("Every advantage is zero: all of its group have the same reward."),
  critic_warmup: () => t("The critic alone was learning then."),
};

/** @param {Token[]} tokens @param {TrainedStep | null} trained @returns {Group[]} */
export function grouped(tokens, trained = null) {
  /** @type {Group[]} */
  const groups = [];
  tokens.forEach((token, index) => {
    const saw = sawOf(trained, index);
    const last = groups[groups.length - 1];
    if (token.text === null && last) {
      last.tokens.push(token);
      last.saw.push(saw);
    } else groups.push({ first: index, tokens: [token], saw: [saw], text: token.text ?? "" });
  });
  return groups;
}

/**
 * @param {Element} box
 * @param {Token[]} tokens
 * @param {TrainedStep | null} trained what training saw of them
 * @param {string} name of the colouring
 */
export function drawTokens(box, tokens, trained, name) {
  const colouring = colouringOf(name, tokens);
  const readout = h("dl", { class: "token-readout facts", "aria-live": "polite" });
  const flow = h("div", { class: "token-flow agent-text", role: "group", "aria-label": t("Tokens; arrow keys move between them") });
  const groups = grouped(tokens, trained);
  const missing = trained?.records[trained.record ?? -1]?.left_out ? t("left out of the update") : t("not recorded");
  groups.forEach((group, index) => {
    const node = h("span", {
      class: `token ${colouring.shade(group)}${group.tokens.some((token) => token.trained) ? "" : " masked"}`,
      tabindex: index === 0 ? 0 : -1,
      "data-group": index,
    });
    if (group.text) show(node, group.text);
    else node.append(h("span", { class: "hidden-character" }, `#${group.tokens[0].id}`));
    flow.append(node);
  });
  const tell = (/** @type {Event} */ event) => {
    const node = /** @type {Element} */ (event.target).closest(".token");
    if (node) describe(readout, groups[Number(/** @type {HTMLElement} */ (node).dataset.group)], missing);
  };
  flow.addEventListener("mouseover", tell);
  flow.addEventListener("focusin", tell);
  flow.addEventListener("keydown", walk);
  if (groups.length) describe(readout, groups[0], missing);
  box.replaceChildren(h("p", { class: "small muted" }, told(trained, colouring.of)), legend(tokens, groups, colouring, missing), flow, readout);
}

/** What was recorded of this trajectory's training. @param {TrainedStep | null} trained @param {string} [column] that is wanted */
function told(trained, column) {
  const record = trained?.records[trained.record ?? -1];
  if (!trained || !record) return t("Not recorded: what training saw of this trajectory is not known.");
  if (record.left_out) {
    const why = LEFT_OUT[/** @type {keyof typeof LEFT_OUT} */ (record.left_out)]?.() ?? record.left_out;
    return t("In the batch of trainer step %(step)s, and left out of its update. %(why)s", { step: number(record.step), why });
  }
  const passes = Math.max(0, ...(trained.columns?.passes ?? []).map((count) => Number(count ?? 0)));
  const base = t("Trained on in trainer step %(step)s (attempt %(attempt)s), by policy version %(version)s.", {
    step: number(record.step),
    attempt: record.attempt,
    version: record.version,
  });
  const often = passes > 1 ? ` ${t("The step went over it %(n)s times; the numbers are of the last.", { n: passes })}` : "";
  const none = column && !trained.columns?.[column] ? ` ${t("Its loss used no such number.")}` : "";
  return base + often + none;
}

/** @param {KeyboardEvent} event */
function walk(event) {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const here = /** @type {HTMLElement | null} */ (document.activeElement);
  const next = /** @type {HTMLElement | null} */ (by === 1 ? here?.nextElementSibling : by === -1 ? here?.previousElementSibling : null);
  if (!here || !next) return;
  event.preventDefault();
  here.tabIndex = -1;
  next.tabIndex = 0;
  next.focus();
}

/** @param {Element} readout @param {Group} group @param {string} missing what to say where training saw nothing */
function describe(readout, group, missing) {
  const rows = group.tokens.flatMap((token, offset) => [
    h("dt", {}, t("token %(n)s", { n: group.first + offset })),
    h(
      "dd",
      {},
      token.version < 0
        ? t("id %(id)s, demonstrated, %(trained)s", { id: token.id, trained: token.trained ? t("trained on") : t("masked") })
        : t("id %(id)s, log-probability %(logprob)s (%(share)s), policy version %(version)s, %(trained)s", {
            id: token.id,
            logprob: number(token.logprob),
            share: percent(Math.exp(token.logprob), 2),
            version: token.version,
            trained: token.trained ? t("trained on") : t("masked"),
          }),
    ),
    h("dt", {}, t("in training")),
    h("dd", {}, seen(group.saw[offset], missing)),
  ]);
  readout.replaceChildren(...rows);
}

/** @param {Saw | null} saw @param {string} missing */
function seen(saw, missing) {
  if (!saw) return missing;
  const parts = [
    ...(saw.advantage === null ? [] : [t("advantage %(n)s", { n: number(saw.advantage) })]),
    ...(saw.weight === null ? [] : [t("importance weight %(n)s×", { n: number(saw.weight) })]),
    ...((saw.clipped ?? 0) > 0 ? [t("upper bound held")] : []),
    ...((saw.clipped ?? 0) < 0 ? [t("lower bound held")] : []),
    ...(saw.correction === null ? [] : [saw.correction === 0 ? t("masked by the correction") : t("corrected by %(n)s×", { n: number(saw.correction) })]),
    ...(saw.entropy === null ? [] : [t("entropy %(n)s nats", { n: number(saw.entropy) })]),
    ...(saw.logprob === null ? [] : [t("log-probability %(n)s", { n: number(saw.logprob) })]),
  ];
  return parts.join(", ");
}

/** @param {Token[]} tokens @param {Group[]} groups @param {import("./colourings.js").Colouring} colouring @param {string} missing */
function legend(tokens, groups, colouring, missing) {
  const box = h("ul", { class: "token-legend small", "aria-label": t("Legend") });
  for (const [shade, text] of colouring.legend) box.append(h("li", {}, h("span", { class: `token-swatch ${shade}` }), text));
  if (colouring.of && groups.some((group) => colouring.shade(group).startsWith("token-unrecorded"))) {
    box.append(h("li", {}, h("span", { class: "token-swatch token-unrecorded" }), missing));
  }
  if (tokens.some((token) => !token.trained)) box.append(h("li", { class: "masked" }, t("underlined: masked, not trained on")));
  return box;
}
