/** Saving the text as a preset; a name that is taken is replaced only when asked for. */

import { api, Problem } from "../api.js";
import { h, one, toast } from "../dom.js";
import { t } from "../i18n.js";

/** @param {() => string} text of the spec */
export function savesPresets(text) {
  const form = /** @type {HTMLFormElement | null} */ (one("#preset-form"));
  if (!form) return;
  const name = /** @type {HTMLInputElement} */ (one("#preset-name"));
  const problem = /** @type {HTMLElement} */ (one("#preset-problem"));
  const replace = /** @type {HTMLElement} */ (one("#preset-replace"));

  function reset() {
    problem.hidden = replace.hidden = true;
    name.removeAttribute("aria-invalid");
  }

  name.addEventListener("input", reset);
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = { name: name.value, text: text(), project: form.dataset.project, replace: event.submitter === replace };
    reset();
    try {
      show(await api("presets", { body }));
    } catch (error) {
      const found = /** @type {Problem} */ (error);
      problem.textContent = [found.message, ...(found.errors || []).slice(0, 5).map((each) => `${each.path}: ${each.message}`)].join(" ");
      problem.hidden = false;
      name.setAttribute("aria-invalid", "true");
      if (found.status === 409) replace.hidden = false;
      return;
    }
    form.closest("dialog")?.close();
    toast(t("The preset was saved."));
  });
}

/** Among the recipes, where they are shown. @param {{id: string, name: string}} preset */
function show(preset) {
  const address = `?preset=${preset.id}`;
  const cards = one("#preset-cards");
  if (!cards || one(`a[href="${address}"]`, cards)) return;
  cards.append(h("a", { class: "card recipe", href: address }, h("span", { class: "strong" }, preset.name), h("span", { class: "small muted" }, t("preset"))));
}
