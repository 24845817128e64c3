/** Small helpers over the DOM. Text is only ever set as text. */

/**
 * @param {string} tag
 * @param {Record<string, any>} [props] attributes; `class`, `on…` handlers and booleans as expected
 * @param {...(Node|string|number|null|undefined)} children
 * @returns {HTMLElement}
 */
export function h(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else node.setAttribute(name, String(value));
  }
  append(node, children);
  return node;
}

/**
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node|string)} children
 * @returns {SVGElement}
 */
export function svg(tag, props = {}, ...children) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(props)) node.setAttribute(name, String(value));
  append(node, children);
  return node;
}

/**
 * @param {Element} node
 * @param {(Node|string|number|null|undefined)[]} children
 */
function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined) continue;
    node.append(child instanceof Node ? child : String(child));
  }
}

/**
 * @template {Element} T
 * @param {string} selector
 * @param {ParentNode} [root]
 * @returns {T | null}
 */
export function one(selector, root = document) {
  return /** @type {T | null} */ (root.querySelector(selector));
}

/**
 * @param {string} selector
 * @param {ParentNode} [root]
 * @returns {HTMLElement[]}
 */
export function all(selector, root = document) {
  return /** @type {HTMLElement[]} */ ([...root.querySelectorAll(selector)]);
}

/**
 * The data that the server put into the page as a JSON block.
 * @param {string} id
 * @returns {any}
 */
export function pageData(id) {
  const block = document.getElementById(id);
  return block ? JSON.parse(block.textContent || "null") : null;
}

/**
 * A short message in the corner.
 * @param {string} text
 * @param {"good"|"bad"|"warn"} [tone]
 */
export function toast(text, tone = "good") {
  const box = document.getElementById("toasts");
  if (!box) return;
  const note = h("div", { class: `notice notice-${tone}` }, text);
  box.append(note);
  setTimeout(() => note.remove(), tone === "bad" ? 12000 : 5000);
}
