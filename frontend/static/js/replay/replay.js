/** The replay page: timeline, transcript and inspector of one trajectory, kept on the same step. */

import { api } from "../api.js";
import { h, one, pageData, toast } from "../dom.js";
import { t } from "../i18n.js";
import { addKeys } from "../keyboard.js";
import { awaited, shown } from "../ready.js";
import { Comments } from "./comments.js";
import { open } from "./field.js";
import { Inspector } from "./inspector.js";
import { estimates } from "./layout.js";
import { Playback } from "./playback.js";
import { Search } from "./search.js";
import { drawStep } from "./step_view.js";
import { Steps } from "./steps.js";
import { selectedRange } from "./text.js";
import { Timeline } from "./timeline.js";
import { WindowedList } from "./windowed.js";

/** @typedef {{step: number, field: string, start: number, stop: number}} Place characters of a field of a step */

/** @param {Place} place */
const addressOf = (place) => `#step=${place.step}&field=${place.field}&span=${place.start}-${place.stop}`;

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
  awaited("steps");
  const steps = new Steps(page.id, outline.tool.length);
  const inspector = new Inspector(need("[data-inspector]"), steps);
  let selected = 0;
  // A comment that the address names is found only once comments are here.
  let asked = location.hash.startsWith("#comment=") ? location.hash : "";
  /** @type {Place | null} */
  let link = null;

  const comments = new Comments(need("[data-comments]"), {
    trajectory: page.id,
    project: page.project,
    mayWrite: page.may_comment,
    onGo: (anchor) => anchor.step !== null && reveal(anchor.step, anchor.field, anchor.stop),
    onChange: () => {
      timeline.commented = new Set(comments.all.flatMap((c) => (c.step === null ? [] : [c.step])));
      timeline.draw();
      redraw();
      if (!asked) return;
      history.replaceState(null, "", asked);
      asked = "";
      follow();
    },
  });
  const search = new Search(/** @type {HTMLInputElement} */ (need("[data-search]")), need("[data-matches]"), {
    trajectory: page.id,
    onGo: (match) => match.step !== null && reveal(match.step, match.field, match.stop),
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
  const timeline = new Timeline(/** @type {HTMLCanvasElement} */ (need("[data-timeline]")), need("[data-caption]"), need("[data-legend]"), outline, select);
  const playback = new Playback(
    /** @type {HTMLButtonElement} */ (need("[data-play]")),
    /** @type {HTMLSelectElement} */ (need("[data-speed]")),
    { last: steps.count - 1, current: () => selected, seconds: (step) => outline.duration_s[step] ?? 0, onStep: select },
  );
  steps.listeners.push((first, last) => {
    for (let index = first; index <= last; index += 1) list.redraw(index);
    shown("steps");
  });
  steps.troubled.push((problem) => toast(problem.message, "bad"));

  function redraw() {
    for (const index of [...list.drawn.keys()]) list.redraw(index);
  }

  /** The span of the address, highlighted. @param {number} step @param {string} field */
  function linked(step, field) {
    return link?.step === step && link.field === field ? [{ start: link.start, stop: link.stop, class: "linked" }] : [];
  }

  /** Select a step without moving the transcript. @param {number} step */
  function mark(step) {
    const old = selected;
    selected = step;
    for (const index of [old, step]) list.drawn.get(index)?.toggleAttribute("data-selected", index === step);
    timeline.select(step);
    inspector.select(step);
    history.replaceState(null, "", link?.step === step ? addressOf(link) : `#step=${step}`);
  }

  /** Select a step and bring it into view. @param {number} step */
  function select(step) {
    if (!(step >= 0 && step < steps.count)) return;
    mark(step);
    list.goTo(step);
  }

  /**
   * Go to characters of a field, also where they lie beyond the cut.
   * @param {number} step
   * @param {string} field
   * @param {number | null} stop
   */
  async function reveal(step, field, stop) {
    select(step);
    if (stop === null) return;
    try {
      await open(steps.get(step) ?? (await steps.whole(step)), field, stop, options);
    } catch (problem) {
      toast(/** @type {Error} */ (problem).message, "bad");
    }
    redraw();
    one(`[data-step="${step}"] [data-field="${field}"] :is(mark.current, mark.linked, mark.commented)`, transcript)?.scrollIntoView({ block: "nearest" });
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
      if (known.step !== null) reveal(known.step, known.field, known.stop);
      return;
    }
    const step = Number(wanted.get("step") || 0);
    const [field, span] = [wanted.get("field"), wanted.get("span")];
    if (field && span) {
      link = { step, field, start: Number(span.split("-")[0]), stop: Number(span.split("-")[1]) };
      reveal(step, field, link.stop);
    } else select(step);
  }

  async function copyLink() {
    const place = pointed();
    const hash = place ? addressOf(place) : `#step=${selected}`;
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
