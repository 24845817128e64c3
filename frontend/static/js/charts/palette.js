/** Colours of the theme as values that SVG understands; names stay in tokens.css. */

/** @type {Map<string, string>} */
let known = new Map();

/** The colour of a token, resolved for the theme in force. @param {string} token e.g. "--accent" */
export function colour(token) {
  let found = known.get(token);
  if (!found) {
    const probe = document.createElement("span");
    probe.style.color = `var(${token})`;
    document.body.append(probe);
    found = getComputedStyle(probe).color;
    probe.remove();
    known.set(token, found);
  }
  return found;
}

/** @param {number} index */
export function seriesColour(index) {
  return colour(`--series-${index % 8}`);
}

document.addEventListener("themechange", () => {
  known = new Map();
});
