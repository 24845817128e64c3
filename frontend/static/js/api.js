/** The REST API as this browser's session sees it. */

import { t } from "./i18n.js";

/** An answer that is no success: what happened, and where in the input. */
export class Problem extends Error {
  /**
   * @param {number} status
   * @param {string} message
   * @param {{path: string, message: string}[]} [errors]
   */
  constructor(status, message, errors = []) {
    super(message);
    this.status = status;
    this.errors = errors;
  }
}

/**
 * @param {string} path below /api/v1/, or an absolute path
 * @param {{method?: string, body?: any, signal?: AbortSignal}} [options]
 * @returns {Promise<any>}
 */
export async function api(path, options = {}) {
  const url = path.startsWith("/") ? path : `/api/v1/${path}`;
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json" };
  let body;
  if (options.body !== undefined) {
    headers["Content-Type"] = "application/json";
    body = JSON.stringify(options.body);
  }
  const method = options.method || (body === undefined ? "GET" : "POST");
  if (method !== "GET") headers["X-CSRFToken"] = csrf();
  let response;
  try {
    response = await fetch(url, { method, headers, body, signal: options.signal, credentials: "same-origin" });
  } catch (error) {
    if (options.signal?.aborted) throw error;
    throw new Problem(0, t("The server cannot be reached. Nothing was changed; try again."));
  }
  const text = await response.text();
  const data = text ? parse(text) : null;
  if (!response.ok) {
    throw new Problem(response.status, data?.detail || data?.title || `${response.status} ${response.statusText}`, data?.errors);
  }
  return data;
}

export function csrf() {
  return document.querySelector('meta[name="csrf"]')?.getAttribute("content") || "";
}

/** @param {string} text */
function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
