/** A spec that was typed and not launched stays in this tab: a reload or a way back loses nothing. */

import { h, one } from "../dom.js";
import { t } from "../i18n.js";

const KEY = `caravan-spec-${location.pathname}${location.search}`;

export class Draft {
  /** Brings back what was typed. @param {import("./editor.js").Editor} editor @param {() => void} changed @param {boolean} refused the page came with what was typed, since it cannot be launched */
  constructor(editor, changed, refused) {
    this.editor = editor;
    const given = editor.text;
    this.given = refused ? null : given;
    if (refused) this.keep();
    const found = sessionStorage.getItem(KEY);
    const notice = /** @type {HTMLElement | null} */ (one("#draft"));
    if (found === null || found === given || !notice) return;
    editor.replace(found);
    const again = () => {
      notice.hidden = true;
      editor.replace(given);
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
