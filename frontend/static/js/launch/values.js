/** Between a field of the form and a value of the spec. What cannot be read is passed on as text: the server names it. */

import { h } from "../dom.js";

/**
 * @typedef {{path: string, value?: unknown} | {reward: string}} Change a path without a value: back
 * to the default; or the id of a stored reward scheme's version
 */

/** @param {HTMLInputElement} field @returns {unknown} undefined: back to the default */
export function parseField(field) {
  const text = field.value.trim();
  if (!text) return undefined;
  switch (field.dataset.kind) {
    case "number":
      return scalar(text);
    case "list":
      return text.split(/[,\s]+/).filter(Boolean).map(scalar);
    case "map":
      return parseMap(text);
    case "flag":
      return text === "true" ? true : text === "false" ? false : text;
    default:
      return text;
  }
}

/** "1: 3000, 2: 6000" @param {string} text */
function parseMap(text) {
  /** @type {Record<string, unknown>} */
  const found = {};
  for (const pair of text.split(",")) {
    const at = pair.lastIndexOf(":");
    if (at < 0) return text;
    found[pair.slice(0, at).trim()] = scalar(pair.slice(at + 1).trim());
  }
  return found;
}

/** @param {string} text */
function scalar(text) {
  const number = Number(text);
  return text !== "" && Number.isFinite(number) ? number : text;
}

/** @param {HTMLInputElement | HTMLSelectElement} field @param {any} value */
export function writeField(field, value) {
  if (value === undefined || value === null) field.value = "";
  else if (Array.isArray(value)) field.value = value.join(", ");
  else if (typeof value === "object") field.value = Object.entries(value).map(([key, item]) => `${key}: ${item}`).join(", ");
  else {
    const text = String(value);
    const known = !(field instanceof HTMLSelectElement) || [...field.options].some((option) => option.value === text);
    if (!known) field.append(h("option", { value: text }, text)); // what is written stays choosable
    field.value = text;
  }
}
