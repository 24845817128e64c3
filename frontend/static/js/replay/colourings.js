/** By what tokens are coloured: the shade of each, and a legend with units. Colour is never alone. */

import { number, toNumber } from "../format.js";
import { t } from "../i18n.js";

/**
 * @typedef {import("./steps.js").Token} Token
 * @typedef {import("./steps.js").TrainedStep} TrainedStep
 * @typedef {Record<string, number | null>} Saw what training saw of a token, by column
 * @typedef {{first: number, tokens: Token[], saw: (Saw | null)[], text: string}} Group tokens that share characters
 * @typedef {{shade: (group: Group) => string, legend: [string, string][], of?: string}} Colouring
 *   `of`: the column that it needs of what training recorded
 */

/** Least probability of each shade, the surest first. */
const PROBABILITIES = [0.99, 0.9, 0.7, 0.5, 0.2, 0.05, 0.01, 0];
const ENTROPIES = [0, 0.01, 0.1, 0.3, 0.7, 1.2, 2, 3]; // nats, least of each shade
const ADVANTAGES = [0.1, 0.5, 1, 2]; // least size of each shade; below the first: neutral
const WEIGHTS = [1.05, 1.25, 2, 5]; // least factor away from 1
const VERSION_COLOURS = 8;

/** @type {Record<string, (tokens: Token[]) => Colouring>} */
const COLOURINGS = { logprob, advantage, weight, entropy, version, trained };

/** @param {string} name @param {Token[]} tokens @returns {Colouring} */
export function colouringOf(name, tokens) {
  return (COLOURINGS[name] ?? logprob)(tokens);
}

/** @param {Token[]} tokens @returns {Colouring} */
function logprob(tokens) {
  const demonstrated = tokens.some((token) => token.version < 0);
  const sampled = tokens.some((token) => token.version >= 0);
  return {
    shade: (group) => {
      if (group.tokens[0].version < 0) return "token-unsampled"; // it has no probability
      const probability = Math.exp(group.tokens.reduce((sum, token) => sum + token.logprob, 0));
      return `token-p-${PROBABILITIES.findIndex((least) => probability >= least)}`;
    },
    legend: [
      ...(demonstrated ? [entry("token-unsampled", t("demonstrated, not sampled"))] : []),
      ...(sampled ? PROBABILITIES.map((least, index) => entry(`token-p-${index}`, least ? `p ≥ ${least}` : `p < ${PROBABILITIES[index - 1]}`)) : []),
    ],
  };
}

/** @returns {Colouring} */
function advantage() {
  return {
    of: "advantage",
    shade: (group) => diverging(value(group, "advantage"), (size) => ADVANTAGES.filter((least) => size >= least).length),
    legend: [
      ...[...ADVANTAGES].reverse().map((least, index) => entry(`token-minus-${ADVANTAGES.length - index}`, `≤ −${least}`)),
      entry("token-neutral", t("about 0")),
      ...ADVANTAGES.map((least, index) => entry(`token-plus-${index + 1}`, `≥ ${least}`)),
    ],
  };
}

/** @returns {Colouring} */
function weight() {
  return {
    of: "weight",
    shade: (group) => {
      const found = value(group, "weight");
      const log = found === null ? null : Math.log(found);
      const shade = diverging(log, (size) => WEIGHTS.filter((least) => size >= Math.log(least)).length);
      const saw = group.saw.filter((one) => one !== null);
      const marks = [
        ...(saw.some((one) => (one.clipped ?? 0) > 0) ? ["token-clipped-high"] : []),
        ...(saw.some((one) => (one.clipped ?? 0) < 0) ? ["token-clipped-low"] : []),
        ...(saw.some((one) => one.correction === 0) ? ["token-dropped"] : []),
      ];
      return [shade, ...marks].join(" ");
    },
    legend: [
      ...[...WEIGHTS].reverse().map((least, index) => entry(`token-minus-${WEIGHTS.length - index}`, `≤ ${number(1 / least, 2)}×`)),
      entry("token-neutral", t("about 1×")),
      ...WEIGHTS.map((least, index) => entry(`token-plus-${index + 1}`, `≥ ${least}×`)),
      entry("token-neutral token-clipped-high", t("upper bound held")),
      entry("token-neutral token-clipped-low", t("lower bound held")),
      entry("token-neutral token-dropped", t("masked by the correction")),
    ],
  };
}

/** @returns {Colouring} */
function entropy() {
  return {
    of: "entropy",
    shade: (group) => {
      const found = value(group, "entropy");
      return found === null ? "token-unrecorded" : `token-h-${ENTROPIES.filter((least) => found >= least).length - 1}`;
    },
    legend: ENTROPIES.map((least, index) => entry(`token-h-${index}`, index ? t("≥ %(least)s nats", { least }) : t("< %(most)s nats", { most: ENTROPIES[1] }))),
  };
}

/** @param {Token[]} tokens @returns {Colouring} */
function version(tokens) {
  const versions = [...new Set(tokens.map((token) => token.version))].sort((a, b) => a - b);
  const shade = (/** @type {number} */ of) => `token-version-${versions.indexOf(of) % VERSION_COLOURS}`;
  return {
    shade: (group) => shade(group.tokens[0].version),
    legend: versions.map((of) => {
      const count = tokens.filter((token) => token.version === of).length;
      return entry(shade(of), `${of < 0 ? t("no policy") : t("version %(version)s", { version: of })}: ${count}`);
    }),
  };
}

/** @param {Token[]} tokens @returns {Colouring} */
function trained(tokens) {
  const count = tokens.filter((token) => token.trained).length;
  return {
    shade: (group) => (group.tokens.some((token) => token.trained) ? "token-trained" : "token-masked"),
    legend: [entry("token-trained", t("trained on: %(n)s", { n: count })), entry("token-masked", t("masked: %(n)s", { n: tokens.length - count }))],
  };
}

/** @param {string} shade @param {string} text @returns {[string, string]} */
const entry = (shade, text) => [shade, text];

/** The number of the first token of a group that has one. @param {Group} group @param {string} column */
function value(group, column) {
  return group.saw.find((saw) => saw !== null && saw[column] !== null)?.[column] ?? null;
}

/**
 * Neutral at zero, to either side the stronger the farther.
 * @param {number | null} found
 * @param {(size: number) => number} level
 */
function diverging(found, level) {
  if (found === null || Number.isNaN(found)) return "token-unrecorded";
  const reached = level(Math.abs(found));
  return reached ? `token-${found < 0 ? "minus" : "plus"}-${reached}` : "token-neutral";
}

/** What training saw of one token of a turn; null: nothing. @param {TrainedStep | null} trained @param {number} index @returns {Saw | null} */
export function sawOf(trained, index) {
  const found = Object.entries(trained?.columns ?? {}).map(([name, values]) => {
    const given = values?.[index] ?? null;
    return /** @type {[string, number | null]} */ ([name, given === null ? null : toNumber(given)]);
  });
  return found.some(([, given]) => given !== null) ? Object.fromEntries(found) : null;
}
