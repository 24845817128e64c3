/** What a run plays now, on its list of trajectories: by worker, with a link where turns can be followed. */

import { h, one, pageData } from "../dom.js";
import { duration, number } from "../format.js";
import { t } from "../i18n.js";
import { subscribe } from "../live.js";
import { visible } from "./text.js";

/**
 * @typedef {{trajectory: string, task: string, category: string, purpose: string, prompt: string, started_at: number, turns: number,
 *   tokens: number, followed: boolean}} Episode
 * @typedef {{worker: string, running: number, told_at: number, silent: boolean, episodes: Episode[]}} Worker
 */

const page = pageData("running-data");
const box = /** @type {HTMLElement} */ (one("[data-running]"));
const list = /** @type {HTMLElement} */ (one("[data-running-rows]", box));
const about = /** @type {HTMLElement} */ (one("[data-running-about]", box));
let workers = /** @type {Worker[]} */ (page.workers);

function draw() {
  const running = workers.reduce((sum, worker) => sum + worker.running, 0);
  const rows = workers.flatMap((worker) => worker.episodes.map((episode) => row(worker, episode)));
  const hidden = running - rows.length;
  const silent = workers.filter((worker) => worker.silent).map((worker) => worker.worker);
  box.hidden = !running;
  const followed = workers.reduce((sum, worker) => sum + worker.episodes.filter((one_) => one_.followed).length, 0);
  about.textContent = [
    t("%(running)s episodes run; the turns of %(followed)s are published.", { running: number(running), followed }),
    hidden > 0 ? t("%(n)s are not listed.", { n: number(hidden) }) : "",
    silent.length ? t("Not heard of lately: %(workers)s; this may be out of date.", { workers: silent.join(", ") }) : "",
  ].join(" ");
  about.classList.toggle("error-text", silent.length > 0);
  const focused = document.activeElement?.getAttribute("href");
  list.replaceChildren(...rows);
  if (focused) /** @type {HTMLElement | null} */ (one(`a[href="${CSS.escape(focused)}"]`, list))?.focus();
}

/** @param {Worker} worker @param {Episode} episode */
function row(worker, episode) {
  const prompt = visible(episode.prompt);
  const name = h("td", { class: "grow" });
  if (episode.followed) {
    const link = h("a", { href: `/runs/${page.run}/live/${encodeURIComponent(episode.trajectory)}/` });
    link.append(prompt);
    name.append(link, " ", h("span", { class: "badge badge-accent" }, t("live")));
  } else name.append(prompt);
  const cells = [episode.task, episode.category, worker.worker].map((text) => {
    const cell = h("td", { class: "nowrap" });
    cell.append(visible(text));
    return cell;
  });
  const since = Math.max(0, Date.now() / 1000 - episode.started_at);
  return h(
    "tr",
    {},
    name,
    ...cells,
    h("td", { class: "num" }, number(episode.turns)),
    h("td", { class: "num" }, number(episode.tokens)),
    h("td", { class: "num nowrap", "data-since": episode.started_at }, duration(since)),
  );
}

function tick() {
  for (const cell of list.querySelectorAll("[data-since]")) {
    cell.textContent = duration(Math.max(0, Date.now() / 1000 - Number(/** @type {HTMLElement} */ (cell).dataset.since)));
  }
}

draw();
window.setInterval(tick, 1000);
subscribe(`episodes.${page.run}`, page.cursor, (message) => {
  if (message.kind !== "episodes") return;
  workers = message.workers;
  draw();
});
