/** Numbers, sizes and times for people. The same rules as `webapp/templating.py`. */

import { t } from "./i18n.js";

const THIN = "\u202f";

/**
 * @param {number|string|null|undefined} value
 * @param {number} [digits] significant ones
 * @returns {string}
 */
export function number(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  const n = toNumber(value);
  if (Number.isNaN(n)) return "NaN";
  if (!Number.isFinite(n)) return n > 0 ? "∞" : "−∞";
  if (n === 0) return "0";
  const size = Math.abs(n);
  if (size < 1e-4 || size >= 1e7) return n.toExponential(Math.max(digits - 2, 1)).replace("-", n < 0 ? "−" : "-");
  if (Number.isInteger(n)) return group(String(n));
  const places = Math.max(0, digits - 1 - Math.floor(Math.log10(size)));
  return group(n.toFixed(places));
}

/** @param {string} text */
function group(text) {
  const [whole, rest] = text.split(".");
  const grouped = whole.replace(/\B(?=(\d{3})+$)/g, THIN).replace("-", "−");
  return rest === undefined ? grouped : `${grouped}.${rest}`;
}

/** The wire's spelling of non-finite numbers. @param {number|string} value */
export function toNumber(value) {
  if (typeof value === "number") return value;
  return value === "NaN" ? NaN : value === "Infinity" ? Infinity : value === "-Infinity" ? -Infinity : Number(value);
}

/** @param {number|null|undefined} value @param {number} [places] */
export function percent(value, places = 1) {
  return value === null || value === undefined ? "–" : `${(100 * value).toFixed(places)}${THIN}%`.replace("-", "−");
}

/** @param {number|null|undefined} bytes */
export function size(bytes) {
  if (bytes === null || bytes === undefined) return "–";
  let amount = bytes;
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (amount < 1024) return `${unit === "B" ? amount.toFixed(0) : amount.toFixed(1)} ${unit}`;
    amount /= 1024;
  }
  return `${amount.toFixed(1)} TiB`;
}

/** @param {number|null|undefined} seconds */
export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  const whole = Math.floor(seconds);
  if (whole < 60) return `${seconds.toFixed(1)} s`;
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return whole % 60 ? `${minutes} min ${String(whole % 60).padStart(2, "0")} s` : `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return `${hours} h ${String(minutes % 60).padStart(2, "0")} min`;
  return `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

/** A short time, such as a tool call's: 80 µs, 20 ms. @param {number|null|undefined} seconds */
export function shortTime(seconds) {
  if (typeof seconds !== "number" || seconds >= 1) return duration(seconds);
  return seconds < 1e-3 ? `${Math.round(1e6 * seconds)} µs` : `${Math.round(1e3 * seconds)} ms`;
}

/**
 * "3 min ago".
 * @param {number} then seconds since 1970
 * @param {number} [now]
 */
export function ago(then, now = Date.now() / 1000) {
  const past = now - then;
  if (past < -5) return t("in %(time)s", { time: duration(-past) });
  if (past < 5) return t("just now");
  if (past < 60) return t("%(n)s s ago", { n: Math.floor(past) });
  if (past < 3600) return t("%(n)s min ago", { n: Math.floor(past / 60) });
  if (past < 86400) return t("%(n)s h ago", { n: Math.floor(past / 3600) });
  return t("%(n)s d ago", { n: Math.floor(past / 86400) });
}

/** Local date and time to the second. @param {number} at seconds since 1970 */
export function absolute(at) {
  const d = new Date(at * 1000);
  const two = (/** @type {number} */ n) => String(n).padStart(2, "0");
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}
