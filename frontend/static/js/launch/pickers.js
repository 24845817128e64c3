/** Stored versions to choose in the form: the reward scheme's, and the datasets that stages and evaluations read. */

import { finder, optionOf } from "../find.js";
import { h } from "../dom.js";
import { t } from "../i18n.js";

/** @typedef {import("../find.js").Row} Row */
/** @typedef {{items: Row[], more: boolean}} Newest */
/** @typedef {import("./values.js").Change} Change */

const LEARNS = /** @type {Record<string, string>} */ ({ rl: "tasks", opd: "tasks", sft: "trajectories", dpo: "pairs" });
const PLAYED = "tasks"; // kind of dataset that evaluations and practice play
const PLACE = /^(stages\.(\d+))\.(practice\.)?dataset$/;

export class Pickers {
  /**
   * @param {{rewards: Newest, datasets: Newest}} stored the newest versions
   * @param {(changes: Change[]) => void} changed
   */
  constructor(stored, changed) {
    this.stored = stored;
    this.changed = changed;
    this.project = encodeURIComponent(document.body.dataset.project || "");
    /** @type {HTMLSelectElement | null} */
    this.select = null;
  }

  /** What stands above the fields of a part. @param {string} path @returns {HTMLElement[]} */
  above(path) {
    const { items, more } = this.stored.rewards;
    if (path !== "reward" || !items.length) return [];
    const select = /** @type {HTMLSelectElement} */ (h("select", { class: "select", id: "stored-reward" }, h("option", { value: "" }, t("as written here")), ...items.map(optionOf)));
    select.addEventListener("change", () => {
      if (select.value) this.changed([{ reward: select.value }]);
    });
    this.select = select;
    const find = more ? finder(`reward-scheme-versions?project=${this.project}`, "#stored-reward", t("Find a version of a reward scheme")) : null;
    return [h("div", { class: "field form-wide" }, h("label", { for: "stored-reward" }, t("Stored version")), find, select, h("p", { class: "hint", id: "stored-reward-hint" }))];
  }

  /** The stored version that the text says. @param {Row | null} found @param {boolean} valid */
  show(found, valid) {
    if (!this.select) return;
    if (found && ![...this.select.options].some((option) => option.value === found.id)) this.select.append(optionOf(found));
    this.select.value = found?.id || "";
    const hint = this.select.parentElement?.querySelector(".hint");
    if (hint) hint.textContent = found ? t("This is version %(n)s as it is stored.", { n: found.number }) : valid ? t("Not stored yet: the launch stores it as a new version.") : "";
  }

  /**
   * What may be chosen for a field: options, and a field that finds more of them; null where it is typed.
   * @param {string} path @param {any} data of the whole spec @param {string} id of the choice
   * @returns {{options: HTMLElement[], find: HTMLElement | null} | null}
   */
  choices(path, data, id) {
    const [, , stage, practice] = path.match(PLACE) || [];
    const kind = practice || path === "evaluation.dataset" ? PLAYED : LEARNS[stage === undefined ? "" : data?.stages?.[stage]?.kind];
    if (!kind) return null;
    const { items, more } = this.stored.datasets;
    const find = more ? finder(`dataset-versions?project=${this.project}&kind=${kind}`, `#${id}`, t("Find a version of a dataset")) : null;
    return { options: items.filter((row) => row.dataset?.kind === kind).map(optionOf), find };
  }

  /** What goes with a choice: the source of a stage of supervised learning; tasks that are not drawn have no hops. @param {string} path @param {unknown} value @param {any} data @returns {Change[]} */
  also(path, value, data) {
    const [, place, stage, practice = ""] = path.match(PLACE) || [];
    const kind = data?.stages?.[stage]?.kind;
    if (practice || LEARNS[kind] === PLAYED || path === "evaluation.dataset") {
      return value === undefined ? [] : [{ path: `${place || "evaluation"}.${practice}hops` }];
    }
    if (kind !== "sft") return [];
    return [value === undefined ? { path: `${place}.source` } : { path: `${place}.source`, value: "dataset" }];
  }
}
