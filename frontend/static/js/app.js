/** What every signed-in page does: times, theme, keyboard, menus, copying, htmx. */

import { api, csrf } from "./api.js";
import { all, one, toast } from "./dom.js";
import { startFinding } from "./find.js";
import { absolute, ago, duration } from "./format.js";
import { t } from "./i18n.js";
import { startKeyboard } from "./keyboard.js";
import { startNotifications } from "./notifications.js";
import { openPalette, startPalette } from "./palette.js";
import { startScrolling } from "./scrolling.js";
import { startSelection } from "./selection.js";

/** Relative times; the absolute one, in this browser's zone, is the title. */
function refreshTimes() {
  for (const node of all("time[data-time]")) {
    const at = Date.parse(node.getAttribute("datetime") || "") / 1000;
    if (Number.isNaN(at)) continue;
    node.textContent = ago(at);
    node.title = absolute(at);
  }
  for (const node of all("time[data-clock]")) {
    const at = Date.parse(node.getAttribute("datetime") || "") / 1000;
    node.textContent = absolute(at).slice(11);
    node.title = absolute(at);
    node.removeAttribute("data-clock");
  }
  for (const node of all("[data-since]")) {
    node.textContent = duration(Math.max(0, Date.now() / 1000 - Number(node.dataset.since)));
  }
}

/** @param {Event} event */
async function chooseTheme(event) {
  const input = /** @type {HTMLInputElement} */ (event.target);
  if (!input.matches("[data-theme-choice]")) return;
  document.documentElement.dataset.theme = input.value;
  document.dispatchEvent(new CustomEvent("themechange"));
  try {
    await api("/account/theme", { body: { theme: input.value } });
  } catch (error) {
    toast(/** @type {Error} */ (error).message, "bad");
  }
}

/** @param {MouseEvent} event */
async function click(event) {
  const target = /** @type {Element} */ (event.target);
  const copy = /** @type {HTMLElement|null} */ (target.closest("[data-copy]"));
  if (copy) {
    const source = one(copy.dataset.copy || "");
    const text = source instanceof HTMLTextAreaElement || source instanceof HTMLInputElement ? source.value : source?.textContent || "";
    await navigator.clipboard.writeText(text);
    toast(t("Copied."));
  }
  const menu = /** @type {HTMLElement|null} */ (target.closest("[data-menu]"));
  const sidebar = document.getElementById("sidebar");
  if (menu && sidebar) {
    const open = sidebar.toggleAttribute("data-open");
    menu.setAttribute("aria-expanded", String(open));
  } else if (sidebar?.hasAttribute("data-open") && !target.closest("#sidebar")) {
    sidebar.removeAttribute("data-open");
  }
  if (target.closest("[data-palette]")) openPalette();
  if (target.closest("[data-help]")) /** @type {HTMLDialogElement|null} */ (one("#help"))?.showModal();
  const opener = /** @type {HTMLElement|null} */ (target.closest("[data-open-dialog]"));
  if (opener) /** @type {HTMLDialogElement|null} */ (one(opener.dataset.openDialog || ""))?.showModal();
  if (target.closest("[data-close-dialog]")) target.closest("dialog")?.close();
  for (const open of all("details.menu[open]")) if (!open.contains(target)) open.removeAttribute("open");
}

/** Escape closes the navigation of a narrow screen. @param {KeyboardEvent} event */
function closeMenu(event) {
  const sidebar = document.getElementById("sidebar");
  if (event.key !== "Escape" || !sidebar?.hasAttribute("data-open")) return;
  sidebar.removeAttribute("data-open");
  const menu = /** @type {HTMLElement|null} */ (one("[data-menu]"));
  menu?.setAttribute("aria-expanded", "false");
  menu?.focus();
}

/** A form that asks before it acts. @param {SubmitEvent} event */
function confirmFirst(event) {
  const form = /** @type {HTMLFormElement} */ (event.target);
  const question = /** @type {HTMLElement|null} */ (event.submitter)?.dataset.confirm || form.dataset.confirm;
  if (question && !window.confirm(question)) event.preventDefault();
}

/** A view is saved as the page is now: scripts may have changed the address since it was sent. @param {SubmitEvent} event */
function noteQuery(event) {
  for (const field of all("[data-view-query]", /** @type {HTMLFormElement} */ (event.target))) /** @type {HTMLInputElement} */ (field).value = location.search;
}

/** A field whose change sends its form. @param {Event} event */
function sendOnChange(event) {
  const field = /** @type {HTMLInputElement} */ (event.target);
  if (field.matches("[data-send]")) field.form?.requestSubmit();
}

function listenToHtmx() {
  document.body.addEventListener("htmx:configRequest", (event) => {
    /** @type {CustomEvent} */ (event).detail.headers["X-CSRFToken"] = csrf();
  });
  document.body.addEventListener("htmx:afterSettle", refreshTimes);
  document.body.addEventListener("htmx:responseError", (event) => {
    const status = /** @type {CustomEvent} */ (event).detail.xhr.status;
    toast(t("The server answered %(status)s. Reload the page, or try again in a moment.", { status }), "bad");
  });
  document.body.addEventListener("htmx:sendError", () => {
    toast(t("The server cannot be reached. Nothing was changed; try again."), "bad");
  });
}

document.addEventListener("change", chooseTheme);
document.addEventListener("change", sendOnChange);
document.addEventListener("click", click);
document.addEventListener("keydown", closeMenu);
document.addEventListener("submit", confirmFirst);
document.addEventListener("submit", noteQuery);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => document.dispatchEvent(new CustomEvent("themechange")));
setInterval(refreshTimes, 5000);
document.addEventListener("visibilitychange", refreshTimes);
refreshTimes();
startKeyboard();
startPalette();
startNotifications();
startFinding();
startSelection();
startScrolling();
listenToHtmx();
