/** A spec that was typed and not launched stays in this tab: a reload or a way back loses nothing. */

import { h, one } from "../dom.js";
import { t } from "../i18n.js";

const KEY = `caravan-spec-${location.pathname}${location.search}`;

export class Draft {
  /** Brings back what was typed. @param {import("./editor.js").Editor} editor @param {() => void} changed */
  constructor(editor, changed) {
    this.editor = editor;
    this.given = editor.text;
    const found = sessionStorage.getItem(KEY);
    const notice = /** @type {HTMLElement | null} */ (one("#draft"));
    if (found === null || found === this.given || !notice) return;
    editor.replace(found);
    const again = () => {
      notice.hidden = true;
      editor.replace(this.given);
      this.forget();
      changed();
    };
    notice.replaceChildren(t("What you had typed here before is back."), h("button", { class: "button button-small", type: "button", onclick: again }, t("Begin anew")));
    notice.hidden = false;
  }

  keep() {
    if (this.editor.text === this.given) return this.forget();
    try {
      sessionStorage.setItem(KEY, this.editor.text);
    } catch {
      // It does not fit: what is there is launched or lost, as without a draft.
      this.forget();
    }
  }

  forget() {
    sessionStorage.removeItem(KEY);
  }
}
