/** The replay page: timeline, transcript and inspector of one trajectory, kept on the same step. */

import { api } from "../api.js";
import { h, one, pageData, toast } from "../dom.js";
import { t } from "../i18n.js";
import { addKeys } from "../keyboard.js";
import { Comments } from "./comments.js";
import { Inspector } from "./inspector.js";
import { estimates } from "./layout.js";
import { Playback } from "./playback.js";
import { Search } from "./search.js";
import { drawStep } from "./step_view.js";
import { Steps } from "./steps.js";
import { selectedRange } from "./text.js";
import { Timeline } from "./timeline.js";
import { WindowedList } from "./windowed.js";

/** @param {HTMLElement} root */
async function start(root) {
  const page = pageData("replay-data");
  const need = (/** @type {string} */ selector) => /** @type {HTMLElement} */ (one(selector, root));
  const transcript = need("[data-transcript]");
  let outline;
  try {
    outline = await api(`trajectories/${page.id}/outline`);
  } catch (problem) {
    transcript.replaceChildren(h("p", { class: "notice notice-bad", role: "alert" }, /** @type {Error} */ (problem).message));
    return;
  }
  const steps = new Steps(page.id, outline.tool.length);
  const inspector = new Inspector(need("[data-inspector]"), steps);
  let selected = 0;

  const comments = new Comments(need("[data-comments]"), {
    trajectory: page.id,
    mayWrite: page.may_comment,
    onGo: (anchor) => anchor.step !== null && select(anchor.step),
    onChange: () => {
      timeline.commented = new Set(comments.all.flatMap((c) => (c.step === null ? [] : [c.step])));
      timeline.draw();
      redraw();
      if (location.hash.startsWith("#comment=")) follow();
    },
  });
  const search = new Search(/** @type {HTMLInputElement} */ (need("[data-search]")), need("[data-matches]"), {
    trajectory: page.id,
    onGo: (match) => match.step !== null && select(match.step),
    onFound: () => {
      if (search.input.value) inspector.open("search");
      redraw();
    },
  });
  const options = {
    trajectory: page.id,
    opened: new Map(),
    comments: (/** @type {number} */ step) => comments.on(step),
    marks: (/** @type {number} */ step, /** @type {string} */ field) => [...comments.marks(step, field), ...linked(step, field), ...search.marks(step, field)],
    onComment: page.may_comment ? comment : undefined,
  };
  const list = new WindowedList(transcript, {
    heights: estimates(outline),
    draw: (index) => {
      const card = drawStep(index, steps.get(index), options);
      card.toggleAttribute("data-selected", index === selected);
      card.addEventListener("click", () => document.getSelection()?.isCollapsed && mark(index));
      return card;
    },
    wanted: (first, last) => steps.want(first, last),
  });
  const timeline = new Timeline(/** @type {HTMLCanvasElement} */ (need("[data-timeline]")), need("[data-caption]"), outline, select);
  const playback = new Playback(
    /** @type {HTMLButtonElement} */ (need("[data-play]")),
    /** @type {HTMLSelectElement} */ (need("[data-speed]")),
    { last: steps.count - 1, current: () => selected, seconds: (step) => outline.duration_s[step] ?? 0, onStep: select },
  );
  steps.listeners.push((first, last) => {
    for (let index = first; index <= last; index += 1) list.redraw(index);
  });
  steps.troubled.push((problem) => toast(problem.message, "bad"));

  function redraw() {
    for (const index of [...list.drawn.keys()]) list.redraw(index);
  }

  /** The span of the address, highlighted. @param {number} step @param {string} field */
  function linked(step, field) {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const [start, stop] = (wanted.get("span") || "").split("-").map(Number);
    if (wanted.get("step") !== String(step) || wanted.get("field") !== field || !(start < stop)) return [];
    return [{ start, stop, class: "linked" }];
  }

  /** Select a step without moving the transcript. @param {number} step @param {string} [rest] of the address */
  function mark(step, rest = "") {
    const old = selected;
    selected = step;
    for (const index of [old, step]) list.drawn.get(index)?.toggleAttribute("data-selected", index === step);
    timeline.select(step);
    inspector.select(step);
    history.replaceState(null, "", `#step=${step}${rest}`);
  }

  /** Select a step and bring it into view. @param {number} step @param {string} [rest] */
  function select(step, rest = "") {
    if (step < 0 || step >= steps.count) return;
    mark(step, rest);
    list.goTo(step);
  }

  /** What is selected in the transcript: a span of a field of a step, or the current step. */
  function pointed() {
    const node = document.getSelection()?.anchorNode;
    const element = node instanceof Element ? node : node?.parentElement;
    const field = /** @type {HTMLElement | null} */ (element?.closest("[data-transcript] [data-field]") ?? null);
    const range = field && selectedRange(field);
    if (!field || !range || !["text", "result"].includes(field.dataset.field || "")) return null;
    const card = /** @type {HTMLElement} */ (field.closest("[data-step]"));
    return { step: Number(card.dataset.step), field: field.dataset.field || "", ...range };
  }

  /** @param {number} step */
  function comment(step) {
    inspector.open("comments");
    comments.write(pointed() ?? { step, field: "", start: null, stop: null });
  }

  /** Go where the address points. */
  function follow() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    const known = comments.find(wanted.get("comment") || "");
    if (known) {
      inspector.open("comments");
      document.getElementById(known.id)?.scrollIntoView({ block: "nearest" });
      if (known.step !== null) select(known.step);
      return;
    }
    const span = wanted.get("span");
    select(Number(wanted.get("step") || 0), span ? `&field=${wanted.get("field")}&span=${span}` : "");
    if (span) redraw();
  }

  async function copyLink() {
    const place = pointed();
    const hash = place ? `#step=${place.step}&field=${place.field}&span=${place.start}-${place.stop}` : `#step=${selected}`;
    await navigator.clipboard.writeText(location.origin + location.pathname + hash);
    toast(t("Link copied."));
  }

  const copy = need("[data-copy-link]");
  copy.addEventListener("mousedown", (event) => event.preventDefault()); // keeps the selection
  copy.addEventListener("click", copyLink);
  window.addEventListener("hashchange", follow);
  const visit = (/** @type {string} */ which) => {
    const link = /** @type {HTMLAnchorElement | null} */ (one(`[data-neighbour="${which}"]`, root));
    link?.click();
    return Boolean(link);
  };
  addKeys({
    j: () => (select(selected + 1), true),
    k: () => (select(selected - 1), true),
    c: () => page.may_comment && (comment(selected), true),
    p: () => (playback.toggle(), true),
    y: () => (copyLink(), true),
    "[": () => visit("previous"),
    "]": () => visit("next"),
  });
  inspector.open("step");
  follow();
}

const root = document.getElementById("replay");
if (root) start(root);
