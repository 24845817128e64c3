/**
 * Text that an agent or a tool wrote, made visible: never markup, nothing hidden, nothing reordered.
 * Positions are characters (code points), as on the server.
 */

import { h } from "../dom.js";
import { size } from "../format.js";

/** Control, format and bidi characters, lone surrogates, and what looks like nothing. */
const HIDDEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]|[\u{e0000}-\u{e0fff}]|[\ud800-\udfff]/gu;

const NAMES = /** @type {Record<number, string>} */ ({
  0x00: "NUL", 0x07: "BEL", 0x08: "BS", 0x0d: "CR", 0x1b: "ESC", 0x200b: "ZWSP", 0x200c: "ZWNJ", 0x200d: "ZWJ",
  0x200e: "LRM", 0x200f: "RLM", 0x202a: "LRE", 0x202b: "RLE", 0x202c: "PDF", 0x202d: "LRO", 0x202e: "RLO",
  0x2066: "LRI", 0x2067: "RLI", 0x2068: "FSI", 0x2069: "PDI", 0xfeff: "BOM",
});

/**
 * @typedef {{start: number, stop: number, class: string, id?: string}} Mark a range to highlight
 */

/**
 * Nodes that show `text`; hidden characters become labels that count as one character.
 * @param {string} text
 * @returns {DocumentFragment}
 */
export function visible(text) {
  const out = document.createDocumentFragment();
  let from = 0;
  for (const found of text.matchAll(HIDDEN)) {
    if (found.index > from) out.append(text.slice(from, found.index));
    const code = /** @type {number} */ (found[0].codePointAt(0));
    const hex = `U+${code.toString(16).toUpperCase().padStart(4, "0")}`;
    out.append(h("span", { class: "hidden-character", title: hex, "data-characters": "1" }, NAMES[code] || hex));
    from = found.index + found[0].length;
  }
  if (from < text.length) out.append(text.slice(from));
  return out;
}

/**
 * @typedef {{at: number, start: number, stop: number, kind: string, label: string, bytes: number, width: number, height: number}} Embedded
 *   characters `start` to `stop` that are base64; in a text one character at `at` stands for them. `kind`: an image that may be shown
 */

/**
 * Show `text` in `element`, with ranges highlighted. Ranges may overlap.
 * @param {Element} element
 * @param {string} text
 * @param {Mark[]} [marks] in characters of the whole text
 * @param {{first: number, embedded: Embedded[], address: (one: Embedded) => string}} [of] `first`: where this part begins in the whole
 */
export function show(element, text, marks = [], of = { first: 0, embedded: [], address: () => "" }) {
  element.replaceChildren();
  if (!marks.length && !of.embedded.length) {
    element.append(visible(text));
    return;
  }
  const characters = [...text];
  const ranges = marks.map((mark) => ({ mark, start: placeOf(mark.start, of, characters.length), stop: placeOf(mark.stop, of, characters.length) }));
  const standing = new Map(of.embedded.map((one) => [one.at, one]));
  const edges = new Set([0, characters.length]);
  for (const { start, stop } of ranges) edges.add(start).add(stop);
  for (const at of standing.keys()) edges.add(at).add(at + 1);
  const cuts = [...edges].sort((a, b) => a - b);
  for (let i = 0; i + 1 < cuts.length; i += 1) {
    const one = standing.get(cuts[i]);
    const part = one ? embedded(one, of.address) : visible(characters.slice(cuts[i], cuts[i + 1]).join(""));
    const over = ranges.filter(({ start, stop }) => start <= cuts[i] && stop >= cuts[i + 1]).map(({ mark }) => mark);
    if (!over.length) {
      element.append(part);
      continue;
    }
    const node = h("mark", { class: over.map((mark) => mark.class).join(" ") });
    const id = over.find((mark) => mark.id)?.id;
    if (id) node.dataset.comment = id;
    node.append(part);
    element.append(node);
  }
}

/**
 * Where a character of the whole text stands in the part that is shown.
 * @param {number} place
 * @param {{first: number, embedded: Embedded[]}} of
 * @param {number} length of the part
 */
function placeOf(place, of, length) {
  let found = place - of.first;
  for (const one of of.embedded) {
    if (place >= one.stop) found -= one.stop - one.start - 1;
    else if (place > one.start) found = one.at + 1;
  }
  return Math.min(Math.max(found, 0), length);
}

/** An image, fetched when it comes into view, or a label: never its base64. @param {Embedded} one @param {(one: Embedded) => string} address */
function embedded(one, address) {
  const label = h("span", {});
  label.append(visible(`${one.label}, ${size(one.bytes)}`));
  const box = h("span", { class: "embedded", "data-characters": one.stop - one.start }, label);
  if (one.kind) box.append(h("img", { src: address(one), width: one.width, height: one.height, loading: "lazy", decoding: "async", alt: "" }));
  return box;
}

/**
 * The range of characters that is selected inside `element`, or null.
 * @param {Element} element
 * @returns {{start: number, stop: number} | null}
 */
export function selectedRange(element) {
  const selection = document.getSelection();
  if (!selection || selection.isCollapsed || !selection.rangeCount) return null;
  const range = selection.getRangeAt(0);
  if (!element.contains(range.startContainer) || !element.contains(range.endContainer)) return null;
  const first = Number(/** @type {HTMLElement} */ (element).dataset.first || 0);
  const start = first + charactersBefore(element, range.startContainer, range.startOffset);
  const stop = first + charactersBefore(element, range.endContainer, range.endOffset);
  return start < stop ? { start, stop } : null;
}

/**
 * @param {Element} element
 * @param {Node} node
 * @param {number} offset of `node`, as in a Range
 */
function charactersBefore(element, node, offset) {
  const before = document.createRange();
  before.selectNodeContents(element);
  before.setEnd(node, offset);
  return characters(before.cloneContents());
}

/** @param {Node} node @returns {number} */
function characters(node) {
  if (node instanceof Text) return [...node.data].length;
  if (node instanceof HTMLElement && node.dataset.characters) return node.textContent ? Number(node.dataset.characters) : 0;
  let sum = 0;
  for (const child of node.childNodes) sum += characters(child);
  return sum;
}
