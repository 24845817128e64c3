/** Names of the states of a run, in the words of `webapp/templating.py`. */

import { t } from "./i18n.js";

/** @param {string} state */
export function stateName(state) {
  return /** @type {Record<string, string>} */ ({
    queued: t("queued"),
    starting: t("starting"),
    running: t("running"),
    unreachable: t("unreachable"),
    stopping: t("stopping"),
    succeeded: t("succeeded"),
    stopped: t("stopped"),
    failed: t("failed"),
    interrupted: t("interrupted"),
    lost: t("lost"),
  })[state] || state;
}
