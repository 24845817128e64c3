/** Launch: the YAML editor and the form show one text; the server says what is wrong and where. */

import { api } from "../api.js";
import { h, one, pageData } from "../dom.js";
import { t } from "../i18n.js";
import { Editor } from "./editor.js";
import { showDifferences } from "./differences.js";
import { Draft } from "./draft.js";
import { Form } from "./form.js";
import { Pickers } from "./pickers.js";
import { planner } from "./planner.js";
import { savesPresets } from "./presets.js";

/** @typedef {{path: string, message: string, line: number | null}} Found */

const root = /** @type {HTMLFormElement} */ (one("#launch"));
const verdict = /** @type {HTMLElement} */ (one("#verdict"));
const problems = /** @type {HTMLElement} */ (one("#problems"));
const button = /** @type {HTMLButtonElement} */ (one("#launch-button"));
const devices = /** @type {HTMLInputElement} */ (one("#devices"));
const editor = new Editor(/** @type {HTMLTextAreaElement} */ (one("#spec")), /** @type {HTMLElement} */ (one("#gutter")), typed);
const pickers = new Pickers(pageData("stored-versions"), (changes) => check(changes));
const form = new Form(/** @type {HTMLElement} */ (one("#spec-form")), pageData("spec-schema"), (changes) => check(changes), pickers);

const draft = new Draft(editor, typed, root.hasAttribute("data-refused"));

let sent = 0;
let timer = 0;

function typed() {
  draft.keep();
  verdict.textContent = t("checking");
  verdict.className = "small muted";
  clearTimeout(timer);
  timer = window.setTimeout(() => check(), 300);
}

/** @param {import("./values.js").Change[]} [changes] */
async function check(changes) {
  clearTimeout(timer);
  const number = ++sent;
  const text = editor.text;
  const most = Number(root.dataset.most);
  if (text.length > most) {
    button.disabled = true;
    verdict.textContent = t("%(length)s characters, at most %(most)s fit: put what is that long into a dataset, and name its version in a stage.", { length: text.length, most });
    verdict.className = "small error-text";
    for (const part of ["#differences", "#spec-form", "#plan"]) one(part)?.replaceChildren(h("p", { class: "card-body muted" }, t("Shown once the spec is short enough.")));
    form.forget();
    return;
  }
  let answer;
  try {
    const { parent, checkpoint } = root.dataset;
    answer = await api(root.dataset.check || "", { body: { text, changes, parent, checkpoint, devices: devices.value } });
  } catch (error) {
    verdict.textContent = /** @type {Error} */ (error).message;
    verdict.className = "small error-text";
    return;
  }
  if (number !== sent) return; // a later check is on its way
  if (changes && editor.text === text) {
    editor.replace(answer.text);
    draft.keep();
  }
  show(answer);
}

/** @param {{data: any, spec: any, problems: Found[], plan: import("./planner.js").Plan | null, advice: import("./advice.js").Advice | null, devices_problem: string, reward: import("../find.js").Row | null, differences: import("./differences.js").Row[], more_differences: number}} answer */
function show(answer) {
  const found = answer.problems;
  button.disabled = found.length > 0;
  verdict.className = found.length ? "badge badge-bad" : "badge badge-good";
  verdict.textContent = found.length === 1 ? t("1 problem") : found.length ? t("%(n)s problems", { n: found.length }) : t("can be launched");
  problems.replaceChildren(...found.map((one_) => h("button", { type: "button", class: "problem", onclick: () => editor.goTo(one_.line) }, h("span", { class: "faint" }, one_.line ? t("line %(n)s", { n: one_.line }) : ""), h("code", {}, one_.path), h("span", {}, one_.message))));
  editor.mark(new Set(found.map((one_) => one_.line).filter((line) => line !== null)));
  if (answer.data && typeof answer.data === "object") form.show(answer.data, found);
  one("#plan")?.replaceChildren(...planner(answer.plan, answer.advice));
  one("#devices-problem")?.replaceChildren(answer.devices_problem);
  pickers.show(answer.reward, found.length === 0);
  showDifferences(one("#differences"), answer.differences, answer.more_differences);
}

savesPresets(() => editor.text);
devices.addEventListener("input", typed);
root.addEventListener("submit", (event) => {
  if (event.submitter === button) draft.forget(); // not of a dry run, nor of a sweep, which may be given up
  button.disabled = true;
  button.textContent = t("Launching …");
});
addEventListener("pageshow", (event) => {
  if (event.persisted) location.reload(); // back from the run: the button is as it was
});
check();
