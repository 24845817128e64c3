/** Two trajectories side by side, aligned by step, with the first difference marked. */

import { api } from "../api.js";
import { h, one, pageData, toast } from "../dom.js";
import { t } from "../i18n.js";
import { addKeys } from "../keyboard.js";
import { CompareTokens } from "./compare_tokens.js";
import { estimates } from "./layout.js";
import { drawStep } from "./step_view.js";
import { Steps } from "./steps.js";
import { WindowedList } from "./windowed.js";

/** @typedef {{step: number, field: string, at: number}} Divergence */

const MOST_MARKED = 200; // characters highlighted from the first difference on

/** @param {HTMLElement} root */
async function start(root) {
  const { a, b } = pageData("compare-data");
  const need = (/** @type {string} */ selector) => /** @type {HTMLElement} */ (one(selector, root));
  const verdict = need("[data-verdict]");
  let outlines;
  /** @type {Divergence | null} */
  let divergence;
  try {
    const [left, right, found] = await Promise.all([
      api(`trajectories/${a}/outline`),
      api(`trajectories/${b}/outline`),
      api(`trajectories/${a}/divergence?other=${encodeURIComponent(b)}`),
    ]);
    outlines = [left, right];
    divergence = found.divergence;
  } catch (problem) {
    verdict.className = "notice notice-bad";
    verdict.textContent = /** @type {Error} */ (problem).message;
    return;
  }
  const heights = outlines.map(estimates);
  const count = Math.max(heights[0].length, heights[1].length);
  const sides = [a, b].map((id, side) => ({
    steps: new Steps(id, heights[side].length),
    options: { trajectory: id, opened: new Map(), comments: () => 0, marks: marksOf(side) },
  }));

  /** @param {number} side @returns {(step: number, field: string) => import("./text.js").Mark[]} */
  function marksOf(side) {
    return (step, field) => {
      if (!divergence || step !== divergence.step || field !== divergence.field) return [];
      const texts = sides.map((one_) => fieldOf(one_.steps.get(step), field));
      const stop = differsUpTo(texts[side], texts[1 - side], divergence.at);
      return [{ start: divergence.at, stop, class: "diverged" }];
    };
  }

  /** @param {number} index */
  function draw(index) {
    const row = h("div", { class: "compare-row" });
    row.addEventListener("click", () => tokens.show(index));
    if (divergence && index === divergence.step) {
      row.append(h("p", { class: "compare-divergence" }, describe(divergence)));
    }
    for (const side of sides) {
      if (index < side.steps.count) row.append(drawStep(index, side.steps.get(index), side.options));
      else row.append(h("p", { class: "muted compare-ended" }, t("ended before this step")));
    }
    return row;
  }

  const tokens = new CompareTokens(/** @type {HTMLDetailsElement} */ (need("[data-tokens]")), sides.map((side) => side.steps));
  const goTo = (/** @type {number} */ step) => {
    list.goTo(step);
    tokens.show(step);
  };
  const list = new WindowedList(need("[data-transcript]"), {
    heights: Float64Array.from({ length: count }, (_, i) => Math.max(heights[0][i] ?? 0, heights[1][i] ?? 0)),
    draw,
    wanted: (first, last) => sides.forEach((side) => side.steps.want(first, Math.min(last, side.steps.count - 1))),
  });
  for (const side of sides) {
    side.steps.listeners.push((first, last) => {
      for (let index = first; index <= last; index += 1) list.redraw(index);
    });
    side.steps.troubled.push((problem) => toast(problem.message, "bad"));
  }
  const go = /** @type {HTMLButtonElement} */ (need("[data-divergence]"));
  verdict.textContent = divergence ? describe(divergence) : t("They are the same, step by step.");
  go.disabled = !divergence;
  go.addEventListener("click", () => divergence && goTo(divergence.step));
  goTo(divergence?.step ?? 0);
  const move = (/** @type {number} */ by) => {
    goTo(Math.min(count - 1, Math.max(0, (list.pinned ?? list.top) + by)));
    return true;
  };
  addKeys({ j: () => move(1), k: () => move(-1) });
}

/** The characters of a field as far as they are here. @param {import("./steps.js").Step | undefined} step @param {string} field */
function fieldOf(step, field) {
  return [...((field === "result" ? step?.call?.result : step?.text) || "")];
}

/**
 * Where `own` is the same as `other` again after the difference at `from`: at least one character
 * on, and never within a word.
 * @param {string[]} own
 * @param {string[]} other
 * @param {number} from
 */
function differsUpTo(own, other, from) {
  let same = 0;
  while (own.length - same > from + 1 && other.length - same > from && own[own.length - 1 - same] === other[other.length - 1 - same]) same += 1;
  let stop = own.length - same;
  while (stop < own.length && /[\p{L}\p{N}]/u.test(own[stop])) stop += 1;
  return Math.min(Math.max(stop, from + 1), from + MOST_MARKED);
}

/** @param {Divergence} divergence */
function describe({ step, field, at }) {
  if (field === "end") return t("The same up to step %(step)s, where one of them ends.", { step });
  return t("They diverge at step %(step)s: %(field)s, character %(at)s.", { step, field, at });
}

const root = document.getElementById("replay-compare");
if (root) start(root);
