/** Keys of a review: accept, reject, labels by number, save and next, skip, previous. */

import { all, one } from "../dom.js";
import { addKeys } from "../keyboard.js";

const form = document.getElementById("verdict");
if (form instanceof HTMLFormElement) {
  /** @type {Record<string, () => boolean>} */
  const keys = {
    s: () => {
      form.requestSubmit();
      return true;
    },
    n: () => follow("[data-skip]"),
    b: () => follow("[data-previous-item]"),
  };
  for (const box of all("[data-key]", form)) {
    keys[box.dataset.key || ""] = () => {
      box.click();
      return true;
    };
  }
  addKeys(keys);
}

/** @param {string} selector */
function follow(selector) {
  const link = /** @type {HTMLAnchorElement | null} */ (one(selector));
  link?.click();
  return Boolean(link);
}
