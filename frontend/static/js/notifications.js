/** A browser notification when a run of the project ends, whichever page is open. */

import { all } from "./dom.js";
import { t } from "./i18n.js";
import { subscribe } from "./live.js";
import { stateName } from "./states.js";

/** @typedef {{id: string, name: string, state: string}} Run */

const ENDED = ["succeeded", "stopped", "failed", "interrupted", "lost"];
const MUTED = "caravan.notifications";
/** @type {Map<string, string>} */
const states = new Map();
let first = true;
let following = false;

function allowed() {
  return "Notification" in window && Notification.permission === "granted" && localStorage.getItem(MUTED) !== "off";
}

/** @param {Run[]} runs */
function changed(runs) {
  for (const run of runs) {
    const before = states.get(run.id);
    states.set(run.id, run.state);
    if (!first && before && before !== run.state && ENDED.includes(run.state) && allowed()) announce(run);
  }
  first = false;
  document.dispatchEvent(new CustomEvent("runschanged", { detail: runs }));
}

/** @param {Run} run */
function announce(run) {
  // The tag lets one of several open tabs speak.
  const note = new Notification(t("%(name)s: %(state)s", { name: run.name, state: stateName(run.state) }), { tag: `${run.id}.${run.state}` });
  note.onclick = () => {
    window.focus();
    location.href = `/runs/${run.id}/`;
  };
}

/** @param {string} project */
function follow(project) {
  if (following) return; // a page that shows runs does from its beginning
  following = true;
  subscribe(`project.${project}`, 0, (message) => {
    if (message.kind === "state") changed(message.runs);
  });
}

function show() {
  for (const button of all("[data-notify]")) {
    button.hidden = !("Notification" in window) || Notification.permission === "denied";
    button.setAttribute("aria-pressed", String(allowed()));
  }
}

/** Switch notifications on, asking the browser where it was never asked, or off. @param {string} project */
async function toggle(project) {
  if (allowed()) localStorage.setItem(MUTED, "off");
  else {
    localStorage.removeItem(MUTED);
    if (Notification.permission === "default") await Notification.requestPermission();
    if (allowed()) follow(project);
  }
  show();
}

/** Follow the project where somebody listens: the person, or a page that shows its runs. */
export function startNotifications() {
  const project = document.body.dataset.project;
  if (!project) return;
  show();
  if (allowed() || document.body.hasAttribute("data-runs-live")) follow(project);
  document.addEventListener("click", (event) => {
    if (/** @type {Element} */ (event.target).closest("[data-notify]")) toggle(project);
  });
}
