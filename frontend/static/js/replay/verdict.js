/** A review by keyboard: verdict, labels, scales, note, marks on steps. What is typed is kept in this
 * browser until the server has it, so that a lost connection loses nothing. */

import { Problem, api } from "../api.js";
import { all, h, one, pageData, toast } from "../dom.js";
import { t } from "../i18n.js";
import { addKeys } from "../keyboard.js";
import { Marks } from "./marks.js";

const RENEW_MS = 60_000; // the lease is five minutes long
const RETRY_MS = 5_000;

/** @typedef {{choice: string, labels: string[], scores: Record<string, number>, note: string}} Verdict */

const page = pageData("review-data");
const form = /** @type {HTMLFormElement | null} */ (document.getElementById("verdict"));
const state = /** @type {HTMLElement | null} */ (one("[data-review-state]"));
const kept = `caravan-verdict-${page?.item}`;
let sending = false;
let retry = 0;

/** @param {string} text @param {string} [tone] @param {...Node} more */
function say(text, tone = "", ...more) {
  if (!state) return;
  state.hidden = !text;
  state.className = `notice ${tone ? `notice-${tone}` : ""} row`;
  state.replaceChildren(text, ...more);
}

/** @param {HTMLFormElement} from @returns {Verdict} */
function written(from) {
  const given = new FormData(from);
  /** @type {Record<string, number>} */
  const scores = {};
  for (const box of /** @type {HTMLInputElement[]} */ (all("[data-scale]", from))) {
    if (box.value) scores[box.name.replace("score.", "")] = Number(box.value);
  }
  return { choice: String(given.get("choice") || ""), labels: given.getAll("labels").map(String), scores, note: String(given.get("note") || "") };
}

/** @param {HTMLFormElement} into @param {Verdict} verdict */
function fill(into, verdict) {
  for (const box of /** @type {HTMLInputElement[]} */ (all("input", into))) {
    if (box.name === "choice") box.checked = box.value === verdict.choice;
    else if (box.name === "labels") box.checked = verdict.labels.includes(box.value);
    else if (box.name === "note") box.value = verdict.note;
    else if (box.matches("[data-scale]")) box.value = String(verdict.scores[box.name.replace("score.", "")] ?? "");
  }
}

/** @param {HTMLFormElement} of */
function keep(of) {
  try {
    localStorage.setItem(kept, JSON.stringify(written(of)));
  } catch {
    say(t("This browser keeps no drafts: do not leave the page before you have saved."), "warn");
  }
}

/** @param {HTMLFormElement} of */
function restore(of) {
  const found = localStorage.getItem(kept);
  if (!found) return;
  const before = JSON.stringify(written(of));
  if (found === before) return;
  fill(of, JSON.parse(found));
  say(t("What you had typed here before is back; it is not saved yet."), "warn");
}

/** @param {HTMLFormElement} of */
async function save(of) {
  if (sending || !of.reportValidity()) return;
  sending = true;
  keep(of);
  try {
    await api(`queue-items/${page.item}/verdict`, { method: "PUT", body: written(of) });
  } catch (problem) {
    failed(of, /** @type {Problem} */ (problem));
    return;
  } finally {
    sending = false;
  }
  localStorage.removeItem(kept);
  goOn();
}

/** To the next item, which that holds; who settles disputes goes back to the list of them. */
function goOn() {
  const next = /** @type {HTMLFormElement | null} */ (one("[data-go-on]"));
  if (next) next.submit();
  else location.assign(page.disputes);
}

/** @param {string} [tone] */
const onward = (tone = "") => h("button", { class: `button button-small ${tone}`, type: "button", onclick: goOn }, t("Go to the next one"));

/** @param {HTMLFormElement} of @param {Problem} problem */
function failed(of, problem) {
  window.clearTimeout(retry);
  if (problem.status === 0 || problem.status >= 502) {
    say(t("The server cannot be reached. Your verdict and your note are kept in this browser and are sent as soon as it answers."), "warn");
    retry = window.setTimeout(() => save(of), RETRY_MS);
    return;
  }
  for (const { path } of problem.errors) {
    const name = path.replace("scores.", "score.");
    /** @type {HTMLElement | null} */ (one(`[name="${CSS.escape(name)}"]`, of))?.setAttribute("aria-invalid", "true");
  }
  say(problem.message, "bad", ...(problem.status === 409 ? [onward("button-primary")] : []));
}

/** Hold the item while somebody sees the page; say so where somebody else has it. */
async function hold() {
  if (document.hidden) return;
  try {
    await api(`queue-items/${page.item}/claim`, { method: "POST" });
  } catch (problem) {
    const { status, message } = /** @type {Problem} */ (problem);
    if (status === 409) say(message, "warn", onward());
  }
}

/** @param {string} selector */
function follow(selector) {
  const link = /** @type {HTMLElement | null} */ (one(selector));
  link?.click();
  return Boolean(link);
}

/** Digits go into the scales one after the other. */
function scales() {
  const boxes = /** @type {HTMLInputElement[]} */ (all("[data-scale]", form || undefined));
  boxes.forEach((box, index) =>
    box.addEventListener("input", () => {
      if (!box.checkValidity() || Number(box.value) * 10 <= Number(box.max)) return;
      const next = boxes[index + 1];
      if (next) next.focus();
      else box.blur();
    }),
  );
  return () => {
    const box = boxes.find((candidate) => !candidate.value) ?? boxes[0];
    box?.focus();
    box?.select();
    return Boolean(box);
  };
}

/** @param {[string, string][]} rows what each key does, into the list of keys */
function describe(rows) {
  const list = one("#help dl");
  list?.prepend(...rows.flatMap(([key, text]) => [h("dt", {}, ...key.split(" ").map((k) => h("kbd", {}, k))), h("dd", {}, text)]));
}

/** @type {Record<string, () => boolean>} */
const keys = {
  n: () => follow("[data-skip]"),
  b: () => follow("[data-previous-item]"),
  u: () => follow("[data-undo] button"),
};
/** @type {[string, string][]} */
const rows = [
  ["n b", t("Next and previous item")],
  ["u", t("Take the last verdict back")],
];
if (form) {
  const judged = form;
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    save(judged);
  });
  form.addEventListener("input", () => keep(judged));
  form.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) judged.requestSubmit();
  });
  restore(form);
  window.addEventListener("online", () => retry && save(judged));
  keys.s = () => (judged.requestSubmit(), true);
  keys.v = scales();
  keys.m = () => {
    /** @type {HTMLElement | null} */ (one("[data-note]", judged))?.focus();
    return true;
  };
  for (const box of all("[data-key]", form)) keys[box.dataset.key || ""] = () => (box.click(), true);
  rows.unshift(
    page.single ? ["a r", t("Accept or reject")] : ["q w e", t("Left, right, no difference")],
    ["1…9", t("Labels")],
    ["v", t("Scales: digits fill one after the other")],
    ["m", t("Note; Enter saves")],
    ["s", t("Save and next")],
  );
  if (page.may_mark) {
    const marks = new Marks(/** @type {HTMLElement} */ (one("[data-marks]")), page, (problem) => toast(problem, "bad"));
    Object.assign(keys, marks.keys());
    rows.push(["+ . -", t("Mark the step good, neutral or bad; once more takes the mark away")], [",", t("Note on the mark")]);
  }
}
describe(rows);
addKeys(keys);
if (page?.holds) {
  hold(); // not by looking at the address: a browser that loads pages ahead would take items
  document.addEventListener("visibilitychange", hold);
  setInterval(hold, RENEW_MS);
}
