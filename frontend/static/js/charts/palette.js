/** Colours of the theme as values that SVG understands; names stay in tokens.css. */

/** @type {Map<string, string>} */
let known = new Map();

const OF_CHARTS = [...Array(8).keys()].map((index) => `--series-${index}`).concat("--line", "--faint", "--muted", "--warn");

/** The colour of a token, resolved for the theme in force. @param {string} token e.g. "--accent" */
export function colour(token) {
  // Together: each look at a style after a change of the page has all styles worked out again.
  if (!known.has(token)) resolve(known.size ? [token] : [token, ...OF_CHARTS]);
  return /** @type {string} */ (known.get(token));
}

/** @param {string[]} tokens */
function resolve(tokens) {
  const probes = tokens.map((token) => {
    const probe = document.createElement("span");
    probe.style.color = `var(${token})`;
    return probe;
  });
  document.body.append(...probes);
  tokens.forEach((token, at) => known.set(token, getComputedStyle(probes[at]).color));
  for (const probe of probes) probe.remove();
}

/** @param {number} index */
export function seriesColour(index) {
  return colour(`--series-${index % 8}`);
}

document.addEventListener("themechange", () => {
  known = new Map();
});
