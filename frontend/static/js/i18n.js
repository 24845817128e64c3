/** Text of scripts, translated by Django's catalogue where one is loaded. */

/**
 * @param {string} text a msgid, with %(name)s for each value
 * @param {Record<string, string|number>} [values]
 */
export function t(text, values) {
  const catalogue = /** @type {any} */ (window).django;
  const found = catalogue?.gettext ? catalogue.gettext(text) : text;
  return values ? found.replace(/%\((\w+)\)s/g, (/** @type {string} */ _, /** @type {string} */ name) => String(values[name])) : found;
}
