/** What a step's card is expected to measure before it has been drawn. */

const BASE = 84; // head, padding, labels
const LINE = 20;
const CHARACTERS = 90; // in a line
const MOST = 420; // what a card grows to before its texts scroll

/** @param {import("./steps.js").Outline} outline @returns {Float64Array} pixels, per step */
export function estimates(outline) {
  return Float64Array.from(outline.chars, (chars, step) => {
    const call = outline.tool[step] >= 0 ? 60 : 0;
    return Math.min(MOST, BASE + call + LINE * Math.ceil(chars / CHARACTERS));
  });
}
