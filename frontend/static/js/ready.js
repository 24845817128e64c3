/** The moment at which everything in view shows its data: `performance.mark("ready")`, once a page. */

/** @type {Set<unknown>} */
const waiting = new Set();
/** @type {(() => void)[]} */
const later = [];
let marked = false;

/** The page is not ready before this is. @param {unknown} what */
export function awaited(what) {
  if (!marked) waiting.add(what);
}

/** @param {unknown} what */
export function shown(what) {
  if (!waiting.delete(what) || waiting.size || marked) return;
  marked = true;
  performance.mark("ready");
  for (const act of later.splice(0)) act();
}

/** Now, or once everything in view is there: what lies below it must not hold it up. @param {() => void} act */
export function afterReady(act) {
  if (marked || !waiting.size) act();
  else later.push(act);
}
