/** Stored versions to choose in the form: the reward scheme's, and the dataset that a stage learns. */

import { h } from "../dom.js";
import { number } from "../format.js";
import { t } from "../i18n.js";

/** @typedef {{id: string, name: string, number: number, note: string}} Reward */
/** @typedef {{id: string, name: string, kind: string, number: number, rows: number}} Rows */
/** @typedef {import("./values.js").Change} Change */

const LEARNS = /** @type {Record<string, string>} */ ({ sft: "trajectories", dpo: "pairs" });

export class Pickers {
  /**
   * @param {{rewards: Reward[], datasets: Rows[]}} stored the newest versions
   * @param {(changes: Change[]) => void} changed
   */
  constructor(stored, changed) {
    this.stored = stored;
    this.changed = changed;
    /** @type {HTMLSelectElement | null} */
    this.select = null;
  }

  /** What stands above the fields of a part. @param {string} path @returns {HTMLElement[]} */
  above(path) {
    if (path !== "reward" || !this.stored.rewards.length) return [];
    const options = this.stored.rewards.map((one) => h("option", { value: one.id, title: one.note }, t("%(name)s version %(n)s", { name: one.name, n: one.number })));
    const select = /** @type {HTMLSelectElement} */ (h("select", { class: "select", id: "stored-reward" }, h("option", { value: "" }, t("as written here")), ...options));
    select.addEventListener("change", () => {
      if (select.value) this.changed([{ reward: select.value }]);
    });
    this.select = select;
    return [h("div", { class: "field form-wide" }, h("label", { for: "stored-reward" }, t("Stored version")), select, h("p", { class: "hint", id: "stored-reward-hint" }))];
  }

  /** The stored version that the text says. @param {{id: string, number: number} | null} found @param {boolean} valid */
  show(found, valid) {
    if (!this.select) return;
    this.select.value = found?.id || "";
    const hint = this.select.parentElement?.querySelector(".hint");
    if (hint) hint.textContent = found ? t("This is version %(n)s as it is stored.", { n: found.number }) : valid ? t("Not stored yet: the launch stores it as a new version.") : "";
  }

  /**
   * What may be chosen for a field; null where it is typed.
   * @param {string} path @param {any} data of the whole spec
   * @returns {{value: string, label: string}[] | null}
   */
  options(path, data) {
    const stage = path.match(/^stages\.(\d+)\.dataset$/)?.[1];
    const kind = stage === undefined ? undefined : data?.stages?.[stage]?.kind;
    if (!LEARNS[kind]) return null;
    return this.stored.datasets.filter((one) => one.kind === LEARNS[kind]).map((one) => ({ value: one.id, label: t("%(name)s version %(n)s, %(rows)s rows", { name: one.name, n: one.number, rows: number(one.rows) }) }));
  }

  /** What goes with a choice: the source of a stage of supervised learning. @param {string} path @param {unknown} value @param {any} data @returns {Change[]} */
  also(path, value, data) {
    const place = path.match(/^(stages\.(\d+))\.dataset$/);
    if (!place || data?.stages?.[place[2]]?.kind !== "sft") return [];
    return [value === undefined ? { path: `${place[1]}.source` } : { path: `${place[1]}.source`, value: "dataset" }];
  }
}
