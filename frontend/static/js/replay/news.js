/** The list of a run's trajectories says how many came since it was opened; nothing moves by itself. */

import { one } from "../dom.js";
import { t } from "../i18n.js";
import { on } from "../run/page.js";

const box = /** @type {HTMLElement} */ (one("[data-news]"));
const link = /** @type {HTMLElement} */ (one("a", box));
let count = 0;
let atLeast = false;

on("trajectories", (message) => {
  count += message.rows.length;
  atLeast ||= message.more;
  link.textContent = atLeast ? t("More than %(n)s new trajectories: show them", { n: count }) : t("%(n)s new trajectories: show them", { n: count });
  box.hidden = false;
});
