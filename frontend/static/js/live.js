/** One websocket a page: topics with a cursor each, so that nothing is lost or doubled. */

import { t } from "./i18n.js";
import { duration } from "./format.js";

const SILENT_S = 12; // the server repeats every topic's cursor each 5 s
const MAX_WAIT_S = 15;

/**
 * @typedef {{topic: string, cursor: number, kind: string, [key: string]: any}} Message
 * @typedef {(message: Message, after: number) => (void | Promise<void>)} Handler `after`: where the topic stood
 * @typedef {{topic: string, cursor: number, handle: Handler, queue: Promise<void>}} Subscription
 */

/** @type {Map<string, Subscription>} */
const subscriptions = new Map();
/** @type {WebSocket | null} */
let socket = null;
let attempts = 0;
let heardAt = Date.now();
let connected = false;
let wanted = false;
let timer = 0;

/**
 * Follow a topic from a cursor on. Messages of a topic are handled one after the other; the cursor
 * advances only when the handler is done, so a reconnect asks again for what was not applied.
 * @param {string} topic
 * @param {number} after
 * @param {Handler} handle
 */
export function subscribe(topic, after, handle) {
  subscriptions.set(topic, { topic, cursor: after, handle, queue: Promise.resolve() });
  wanted = true;
  if (connected) ask(topic);
  else connect();
}

/** @param {string} topic */
function ask(topic) {
  const found = subscriptions.get(topic);
  if (found && socket?.readyState === WebSocket.OPEN) {
    socket.send(JSON.stringify({ type: "subscribe", topic, after: found.cursor }));
  }
}

function connect() {
  if (!wanted || (socket && socket.readyState <= WebSocket.OPEN)) return;
  clearTimeout(timer);
  const scheme = location.protocol === "https:" ? "wss:" : "ws:";
  const opened = new WebSocket(`${scheme}//${location.host}/ws/v1/`);
  socket = opened;
  opened.onopen = () => {
    connected = true;
    attempts = 0;
    heardAt = Date.now();
    for (const topic of subscriptions.keys()) ask(topic);
    show();
  };
  opened.onmessage = (event) => receive(event);
  opened.onclose = (event) => {
    if (socket !== opened) return;
    connected = false;
    socket = null;
    if (event.code === 4401) {
      location.reload(); // signed out elsewhere: the page redirects to the login
      return;
    }
    later();
    show();
  };
}

/** Reconnect after a while that grows, with jitter, so that not all pages come back at once. */
function later() {
  const longest = Math.min(MAX_WAIT_S, 0.5 * 2 ** attempts++);
  clearTimeout(timer);
  timer = window.setTimeout(connect, 1000 * longest * (0.5 + Math.random() / 2));
}

/** @param {MessageEvent} event */
function receive(event) {
  heardAt = Date.now();
  const message = /** @type {Message} */ (JSON.parse(event.data));
  const found = subscriptions.get(message.topic);
  if (message.kind === "problem") {
    console.warn(`live ${message.topic}: ${message.detail}`);
    subscriptions.delete(message.topic);
    return;
  }
  if (!found) return;
  found.queue = found.queue.then(async () => {
    try {
      await found.handle(message, found.cursor);
      if (typeof message.cursor === "number") found.cursor = Math.max(found.cursor, message.cursor);
    } catch (error) {
      console.warn("a live message was not applied; it is asked for again", error);
      ask(message.topic);
    }
  });
}

/** A socket that says it is open may be dead: after silence, or when a tab wakes, start anew. */
function check() {
  const silent = (Date.now() - heardAt) / 1000;
  if (wanted && connected && silent > SILENT_S) {
    const dead = socket;
    socket = null;
    connected = false;
    dead?.close();
    attempts = 0;
    connect();
  }
  show();
}

function wake() {
  if (document.visibilityState !== "visible" || !wanted) return;
  if (!connected) {
    attempts = 0;
    connect();
  }
  check();
}

/** The badge that says how old what you see is. */
function show() {
  const badge = document.getElementById("live");
  if (!badge || badge.dataset.live === "off" || !wanted) return;
  const silent = (Date.now() - heardAt) / 1000;
  if (connected && silent <= SILENT_S) {
    badge.className = "badge badge-good";
    badge.dataset.live = "live";
    badge.textContent = t("live");
  } else {
    badge.className = "badge badge-warn";
    badge.dataset.live = "stale";
    badge.textContent = t("not live for %(time)s", { time: duration(Math.max(0, silent)) });
  }
}

document.addEventListener("visibilitychange", wake);
addEventListener("online", wake);
setInterval(check, 2000);
