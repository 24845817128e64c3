/** Logs: new lines at the end, each once; the view stays where the reader is unless it follows. */

import { api } from "../api.js";
import { h, one } from "../dom.js";
import { absolute } from "../format.js";
import { follow, on, runId } from "./page.js";

const MOST = 5000;
const LEVELS = ["debug", "info", "warning", "error"];
const box = /** @type {HTMLElement} */ (one("#log"));
const following = /** @type {HTMLInputElement} */ (one("#follow"));
const root = /** @type {HTMLElement} */ (one("#run"));

function toEnd() {
  if (following.checked) box.scrollTop = box.scrollHeight;
}

/** Whether the filter that is in the URL lets the line through. @param {{level: string, text: string}} line */
function passes(line) {
  const query = new URLSearchParams(location.search);
  const level = query.get("level") || "";
  const q = (query.get("q") || "").toLowerCase();
  return (!level || LEVELS.indexOf(line.level) >= LEVELS.indexOf(level)) && (!q || line.text.toLowerCase().includes(q));
}

/** @param {{id: number, at: number, level: string, source: string, text: string}[]} lines */
function add(lines) {
  for (const line of lines) {
    if (box.querySelector(`[data-line="${line.id}"]`) || !passes(line)) continue;
    one("[data-empty]", box)?.remove();
    const time = new Date(line.at * 1000).toISOString();
    box.append(h("div", { class: `log-line log-${line.level}`, "data-line": line.id }, h("time", { datetime: time, title: absolute(line.at) }, absolute(line.at).slice(11)), h("span", { class: "log-level" }, line.level), h("span", { class: "log-source" }, line.source), h("span", { class: "log-text" }, line.text)));
  }
  const surplus = box.querySelectorAll(".log-line").length - MOST;
  for (let i = 0; i < surplus; i += 1) box.querySelector(".log-line")?.remove();
  toEnd();
}

/** More came at once than a message carries: those between what is shown and now, page by page. */
async function missed() {
  for (;;) {
    const last = [...box.querySelectorAll("[data-line]")].pop()?.getAttribute("data-line") || "0";
    const { items } = await api(`runs/${runId}/logs?after=${last}&limit=200`);
    add(items);
    if (items.length < 200 || last === [...box.querySelectorAll("[data-line]")].pop()?.getAttribute("data-line")) return;
  }
}

box.addEventListener("wheel", () => {
  if (box.scrollHeight - box.scrollTop - box.clientHeight > 40) following.checked = false;
}, { passive: true });
following.addEventListener("change", (event) => {
  event.stopPropagation();
  toEnd();
});
on("log", async (message) => {
  if (message.more) await missed();
  add(message.rows);
});
document.body.addEventListener("htmx:afterSettle", (event) => {
  if (/** @type {HTMLElement} */ (event.target).id === "log") toEnd();
});
toEnd();
follow(Number(root.dataset.cursor));
