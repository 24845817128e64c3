/** The tokens of a step, coloured by a number of theirs; a character that spans tokens stays whole. */

import { h } from "../dom.js";
import { number, percent } from "../format.js";
import { t } from "../i18n.js";
import { show } from "./text.js";

/** @typedef {import("./steps.js").Token} Token */
/** @typedef {{first: number, tokens: Token[], text: string}} Group tokens that share characters */
/** @typedef {"logprob" | "version" | "trained"} Colouring */

/** Least probability of each shade, the surest first. */
const PROBABILITIES = [0.99, 0.9, 0.7, 0.5, 0.2, 0.05, 0.01, 0];
const VERSION_COLOURS = 8;

/** @param {Token[]} tokens @returns {Group[]} */
export function grouped(tokens) {
  /** @type {Group[]} */
  const groups = [];
  tokens.forEach((token, index) => {
    const last = groups[groups.length - 1];
    if (token.text === null && last) last.tokens.push(token);
    else groups.push({ first: index, tokens: [token], text: token.text ?? "" });
  });
  return groups;
}

/** @param {Group} group @param {Colouring} colouring @param {number[]} versions */
function shade(group, colouring, versions) {
  if (colouring === "trained") return group.tokens.some((token) => token.trained) ? "token-trained" : "token-masked";
  if (colouring === "version") return `token-version-${versions.indexOf(group.tokens[0].version) % VERSION_COLOURS}`;
  if (group.tokens[0].version < 0) return "token-unsampled"; // demonstrated: it has no probability
  const probability = Math.exp(group.tokens.reduce((sum, token) => sum + token.logprob, 0));
  return `token-p-${PROBABILITIES.findIndex((least) => probability >= least)}`;
}

/**
 * @param {Element} box
 * @param {Token[]} tokens
 * @param {Colouring} colouring
 */
export function drawTokens(box, tokens, colouring) {
  const versions = [...new Set(tokens.map((token) => token.version))].sort((a, b) => a - b);
  const readout = h("dl", { class: "token-readout facts", "aria-live": "polite" });
  const flow = h("div", { class: "token-flow agent-text", role: "group", "aria-label": t("Tokens; arrow keys move between them") });
  const groups = grouped(tokens);
  groups.forEach((group, index) => {
    const node = h("span", {
      class: `token ${shade(group, colouring, versions)}${group.tokens.some((token) => token.trained) ? "" : " masked"}`,
      tabindex: index === 0 ? 0 : -1,
      "data-group": index,
    });
    if (group.text) show(node, group.text);
    else node.append(h("span", { class: "hidden-character" }, `#${group.tokens[0].id}`));
    flow.append(node);
  });
  const tell = (/** @type {Event} */ event) => {
    const node = /** @type {Element} */ (event.target).closest(".token");
    if (node) describe(readout, groups[Number(/** @type {HTMLElement} */ (node).dataset.group)]);
  };
  flow.addEventListener("mouseover", tell);
  flow.addEventListener("focusin", tell);
  flow.addEventListener("keydown", walk);
  if (groups.length) describe(readout, groups[0]);
  box.replaceChildren(legend(tokens, colouring, versions), flow, readout);
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

/** @param {Element} readout @param {Group} group */
function describe(readout, group) {
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
  ]);
  readout.replaceChildren(...rows);
}

/** @param {Token[]} tokens @param {Colouring} colouring @param {number[]} versions */
function legend(tokens, colouring, versions) {
  const box = h("ul", { class: "token-legend small", "aria-label": t("Legend") });
  const add = (/** @type {string} */ shadeClass, /** @type {string} */ text) =>
    box.append(h("li", {}, h("span", { class: `token-swatch ${shadeClass}` }), text));
  if (colouring === "logprob") {
    if (versions[0] < 0) add("token-unsampled", t("demonstrated, not sampled"));
    if (versions.some((version) => version >= 0)) PROBABILITIES.forEach((least, index) => add(`token-p-${index}`, least ? `p ≥ ${least}` : `p < ${PROBABILITIES[index - 1]}`));
  } else if (colouring === "version") {
    versions.forEach((version, index) => {
      const count = tokens.filter((token) => token.version === version).length;
      const name = version < 0 ? t("no policy") : t("version %(version)s", { version });
      add(`token-version-${index % VERSION_COLOURS}`, `${name}: ${count}`);
    });
  } else {
    const trained = tokens.filter((token) => token.trained).length;
    add("token-trained", t("trained on: %(n)s", { n: trained }));
    add("token-masked", t("masked: %(n)s", { n: tokens.length - trained }));
  }
  if (tokens.some((token) => !token.trained)) box.append(h("li", { class: "masked" }, t("underlined: masked, not trained on")));
  return box;
}
