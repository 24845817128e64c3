/** Follows a running episode: turns append, and the view stays at the newest unless the reader scrolls. */

import { h, one, pageData } from "../dom.js";
import { duration, number } from "../format.js";
import { t } from "../i18n.js";
import { subscribe } from "../live.js";
import { drawStep } from "./step_view.js";

const MOST_DRAWN = 300;
const NEAR_END = 40; // pixels from the end that still count as at the end

/**
 * @typedef {{index: number, text: string, answer?: string | null, tool?: string | null, arguments?: string | null, result?: string,
 *   error?: string | null, duration_s?: number, more?: Record<string, number>}} Turn
 * @typedef {{reason: string, reward: number | null, success: boolean | null}} End
 * @typedef {{trajectory: string, started_at: number, told_at: number, turns: number, tokens: number, end: End | null, stored: boolean}} Episode
 */

/** @param {HTMLElement} root */
function start(root) {
  const page = pageData("episode-data");
  const need = (/** @type {string} */ selector) => /** @type {HTMLElement} */ (one(selector, root));
  const transcript = need("[data-transcript]");
  const follow = need("[data-follow]");
  let episode = /** @type {Episode} */ (page.episode);
  let next = 0; // number of the turn that should come now
  let sticks = true;

  /** @param {Turn[]} turns */
  function append(turns) {
    for (const turn of turns) {
      if (turn.index < next) continue; // told twice
      if (turn.index > next) transcript.append(missing(next, turn.index - 1));
      transcript.append(drawTurn(page.episode.trajectory, turn));
      next = turn.index + 1;
    }
    while (transcript.children.length > MOST_DRAWN) transcript.firstElementChild?.remove();
    if (sticks) toEnd();
  }

  function toEnd() {
    transcript.scrollTop = transcript.scrollHeight;
  }

  /** @param {Episode} told */
  function tell(told) {
    episode = told;
    const { said, tone } = describe(told);
    need("[data-said]").textContent = said;
    need("[data-state]").className = `notice ${tone}`;
    need("[data-replay]").hidden = !told.stored;
    if (told.end) follow.hidden = true;
    progress();
  }

  function progress() {
    const until = episode.end ? episode.told_at : Math.max(episode.told_at, Date.now() / 1000);
    const parts = { turns: number(episode.turns), tokens: number(episode.tokens), time: duration(Math.max(0, until - episode.started_at)) };
    need("[data-progress]").textContent = t("%(turns)s turns, %(tokens)s sampled tokens, %(time)s", parts);
  }

  transcript.addEventListener("scroll", () => {
    sticks = transcript.scrollTop + transcript.clientHeight >= transcript.scrollHeight - NEAR_END;
    follow.hidden = sticks || episode.end !== null;
  });
  follow.addEventListener("click", () => {
    sticks = true;
    toEnd();
  });
  append(page.turns);
  tell(episode);
  window.setInterval(progress, 1000);
  subscribe(`episode.${page.run}.${episode.trajectory}`, page.cursor, (message) => {
    if (message.kind === "turns") append(message.rows);
    else if (message.kind === "episode") tell(message.episode);
  });
}

/** @param {number} first @param {number} last */
function missing(first, last) {
  const text = first === last ? t("Turn %(n)s was not published.", { n: first }) : t("Turns %(first)s to %(last)s were not published.", { first, last });
  return h("p", { class: "muted small live-missing" }, text);
}

/** @param {string} trajectory @param {Turn} turn */
function drawTurn(trajectory, turn) {
  const call = turn.tool
    ? { id: "", name: turn.tool, arguments: parsed(turn.arguments ?? null), result: turn.result ?? "", error: turn.error ?? null, duration_s: turn.duration_s ?? 0 }
    : null;
  const step = { index: turn.index, segment: 0, start: 0, stop: 0, text: turn.text, answer: turn.answer ?? null, reward: null, detour: false, call, more: {} };
  const card = drawStep(turn.index, step, { trajectory, opened: new Map(), comments: () => 0, marks: () => [] });
  for (const total of Object.values(turn.more ?? {})) {
    card.append(h("p", { class: "muted small" }, t("Cut: %(total)s characters in all.", { total: number(total) })));
  }
  return card;
}

/** Arguments as an object; where they were cut, what there is of them. @param {string | null} text */
function parsed(text) {
  if (text === null) return null;
  try {
    return JSON.parse(text);
  } catch {
    return { "…": text };
  }
}

/** @param {Episode} episode */
function describe(episode) {
  const end = episode.end;
  if (!end) return { said: t("It is running: turns appear as they are played."), tone: "" };
  if (end.reason === "dropped") return { said: t("It was dropped when its stage ended; it is not stored."), tone: "notice-warn" };
  if (end.reason === "cut_off") return { said: t("Its attempt ended before it did; it is not stored."), tone: "notice-warn" };
  const reward = end.reward === null ? t("invalid") : number(end.reward);
  const result = end.success ? t("solved") : t("not solved");
  const said = t("Ended: %(reason)s, %(result)s, reward %(reward)s.", { reason: end.reason, result, reward });
  const wait = episode.stored ? "" : ` ${t("Its replay is there once its group is stored, if it is among those kept.")}`;
  return { said: said + wait, tone: end.success ? "notice-good" : "notice-warn" };
}

const root = document.getElementById("live-episode");
if (root) start(root);
