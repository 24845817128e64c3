/** The swatches and the chart of the design page. */

import { seriesColour } from "./charts/palette.js";
import { Plot } from "./charts/plot.js";
import { all, one } from "./dom.js";

const box = one("#design-chart");
if (box instanceof HTMLElement) {
  const plot = new Plot(box);
  const x = Array.from({ length: 120 }, (_, i) => i);
  const y = x.map((i) => 1 - Math.exp(-i / 40) + 0.02 * Math.sin(i));
  const draw = () => plot.draw([{ name: "completion", colour: seriesColour(0), dash: "solid", x, y, low: y.map((v) => v - 0.05), high: y.map((v) => v + 0.05) }, { name: "earlier attempt", colour: seriesColour(0), dash: "solid", faint: true, x, y: y.map((v) => v * 0.8) }], { x: "trainer step", y: "share of tasks", share: true, bad: [40, 41] });
  draw();
  document.addEventListener("themechange", () => setTimeout(draw, 0));
}

for (const swatch of all("[data-swatch]")) swatch.style.background = `var(--${swatch.dataset.swatch})`;
