/** The spec as a form, generated from its JSON schema; a change is sent as a path and a value. */

import { all, h, one } from "../dom.js";
import { t } from "../i18n.js";
import { parseField, writeField } from "./values.js";

/**
 * @typedef {any} Schema a part of a JSON schema
 * @typedef {import("./values.js").Change} Change
 */

export class Form {
  /**
   * @param {HTMLElement} box
   * @param {Schema} schema
   * @param {(changes: Change[]) => void} changed
   * @param {import("./pickers.js").Pickers} pickers
   */
  constructor(box, schema, changed, pickers) {
    this.box = box;
    this.schema = schema;
    this.changed = changed;
    this.pickers = pickers;
    /** @type {any} */
    this.data = {};
    this.shape = "";
    box.addEventListener("change", (event) => this.change(/** @type {HTMLInputElement} */ (event.target)));
    box.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && /** @type {Element} */ (event.target).matches("input")) {
        event.preventDefault(); // it would launch
        this.change(/** @type {HTMLInputElement} */ (event.target));
      }
    });
    const search = /** @type {HTMLInputElement | null} */ (one("#form-search"));
    search?.addEventListener("input", () => this.filter(search.value));
  }

  /**
   * Values and problems of the text. Fields are built anew only where lists grew or kinds changed.
   * @param {any} data
   * @param {{path: string, message: string}[]} problems
   */
  show(data, problems) {
    const shape = outline(data);
    this.data = data;
    if (shape !== this.shape) {
      const open = new Set(all("details[open]", this.box).map((part) => part.dataset.path));
      const focused = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset?.path;
      this.box.replaceChildren(...this.fields(this.schema, data, ""));
      if (this.shape) for (const part of all("details", this.box)) part.toggleAttribute("open", open.has(part.dataset.path));
      if (focused) one(`[data-path="${focused}"]`, this.box)?.dispatchEvent(new Event("focus"));
      this.shape = shape;
    }
    for (const field of /** @type {HTMLInputElement[]} */ (all("[data-path][data-kind]", this.box))) {
      if (field !== document.activeElement) writeField(field, valueAt(data, field.dataset.path || ""));
    }
    this.problems(problems);
  }

  /** Its fields were taken off the page: they are built anew. */
  forget() {
    this.shape = "";
  }

  /** @param {{path: string, message: string}[]} problems */
  problems(problems) {
    for (const old of all(".error-text", this.box)) old.remove();
    for (const field of all("[aria-invalid]", this.box)) field.removeAttribute("aria-invalid");
    for (const part of all("summary .badge-bad", this.box)) part.remove();
    for (const { path, message } of problems) {
      const field = this.nearest(path);
      if (!field) continue;
      field.setAttribute("aria-invalid", "true");
      const id = `error-${path.replace(/\W/g, "-")}`;
      field.setAttribute("aria-describedby", id);
      field.closest(".field")?.append(h("p", { class: "error-text", id }, message));
      for (let part = field.closest("details"); part; part = part.parentElement?.closest("details") || null) {
        const summary = part.querySelector("summary");
        if (summary && !summary.querySelector(".badge-bad")) summary.append(h("span", { class: "badge badge-bad" }, t("problem")));
      }
    }
  }

  /** The field of a path, or of the part around it. @param {string} path */
  nearest(path) {
    for (let at = path; at; at = at.includes(".") ? at.slice(0, at.lastIndexOf(".")) : "") {
      const field = one(`[data-path="${CSS.escape(at)}"][data-kind]`, this.box);
      if (field) return /** @type {HTMLElement} */ (field);
    }
    return null;
  }

  /** @param {HTMLInputElement} field */
  change(field) {
    const path = field.dataset.path;
    if (!path || !field.dataset.kind) return;
    const value = parseField(field);
    this.changed([value === undefined ? { path } : { path, value }, ...this.pickers.also(path, value, this.data)]);
  }

  /** @param {Schema} given */
  resolve(given) {
    let schema = given;
    const kinds = schema.anyOf?.filter((/** @type {Schema} */ option) => option.type !== "null") || [];
    if (kinds.length === 1) schema = { ...kinds[0], ...omit(schema, "anyOf") };
    while (schema.$ref || schema.allOf?.length === 1) {
      schema = schema.$ref ? { ...this.schema.$defs[schema.$ref.split("/").pop()], ...omit(schema, "$ref") } : { ...this.resolve(schema.allOf[0]), ...omit(schema, "allOf") };
    }
    return schema;
  }

  /** @param {Schema} schema of an object @param {any} data @param {string} path @returns {HTMLElement[]} */
  fields(schema, data, path) {
    return Object.entries(schema.properties || {}).map(([name, part]) => this.part(this.resolve(part), data?.[name], path ? `${path}.${name}` : name, name, schema.required?.includes(name)));
  }

  /** @param {Schema} schema @param {any} data @param {string} path @param {string} name @param {boolean} [required] @returns {HTMLElement} */
  part(schema, data, path, name, required) {
    if (schema.properties) return this.section(name, path, schema.description, [...this.pickers.above(path), ...this.fields(schema, data, path)]);
    if (schema.type === "array" && isObject(this.resolve(schema.items || {}), this)) return this.list(schema, data, path, name);
    return this.field(schema, path, name, required);
  }

  /** @param {string} name @param {string} path @param {string} hint @param {HTMLElement[]} children */
  section(name, path, hint, children) {
    return h("details", { class: "form-part", "data-path": path, open: path.split(".").length > 1 }, h("summary", {}, h("span", { class: "strong" }, name.replaceAll("_", " ")), hint ? h("span", { class: "hint clip" }, hint) : null), h("div", { class: "form-grid" }, ...children));
  }

  /** A list of parts of several kinds, e.g. stages. @param {Schema} schema @param {any} data @param {string} path @param {string} name */
  list(schema, data, path, name) {
    const item = this.resolve(schema.items);
    const kinds = /** @type {Record<string, string>} */ (item.discriminator?.mapping || {});
    const children = (Array.isArray(data) ? data : []).map((value, index) => {
      const here = `${path}.${index}`;
      const option = kinds[value?.kind] ? this.resolve({ $ref: kinds[value.kind] }) : item;
      const part = this.section(`${index + 1}. ${value?.kind ?? name}`, here, option.description, this.fields(option, value, here));
      const remove = h("button", { type: "button", class: "button button-quiet button-small", onclick: () => this.changed([{ path: here }]) }, t("Remove"));
      one(".form-grid", part)?.append(h("div", { class: "form-wide" }, remove));
      return part;
    });
    const names = Object.keys(kinds).length ? Object.keys(kinds) : item.properties?.kind?.enum || [];
    /** @type {{label: string, value: object}[]} */
    const made = names.length ? names.map((/** @type {string} */ kind) => ({ label: kind, value: { kind } })) : [{ label: name, value: {} }];
    const add = h("div", { class: "row" }, ...made.map(({ label, value }) => h("button", { type: "button", class: "button button-small", onclick: () => this.changed([{ path: `${path}.${children.length}`, value }]) }, t("Add %(kind)s", { kind: label }))));
    return this.section(name, path, schema.description, [h("div", { class: "stack-s form-wide" }, ...children, add)]);
  }

  /** @param {Schema} schema @param {string} path @param {string} name @param {boolean} [required] */
  field(schema, path, name, required) {
    const id = `field-${path.replace(/\W/g, "-")}`;
    const choices = schema.enum || (schema.const !== undefined ? [schema.const] : null);
    const usual = schema.default === undefined || schema.default === null ? "" : plain(schema.default);
    const common = { id, "data-path": path };
    const offered = this.pickers.choices(path, this.data, id);
    let input;
    if (offered) {
      input = h("select", { class: "select", ...common, "data-kind": "choice" }, h("option", { value: "" }, t("none")), ...offered.options);
    } else if (choices) {
      input = h("select", { class: "select", ...common, "data-kind": "choice" }, h("option", { value: "" }, usual ? t("%(value)s (default)", { value: usual }) : "–"), ...choices.map((/** @type {any} */ value) => h("option", { value }, value)));
    } else {
      const kind = schema.type === "array" ? "list" : schema.additionalProperties ? "map" : schema.type === "integer" || schema.type === "number" ? "number" : schema.type === "boolean" ? "flag" : "text";
      input = h("input", { class: "input", ...common, "data-kind": kind, inputmode: kind === "number" ? "decimal" : null, placeholder: usual || (required ? t("required") : ""), autocomplete: "off", spellcheck: "false" });
    }
    const limits = range(schema);
    return h("div", { class: "field" }, h("label", { for: id }, name.replaceAll("_", " ")), offered?.find, input, schema.description || limits ? h("p", { class: "hint" }, [schema.description, limits].filter(Boolean).join("; ")) : null);
  }

  /** @param {string} text */
  filter(text) {
    const words = text.toLowerCase().split(/\s+/).filter(Boolean);
    for (const field of all(".field", this.box)) {
      const own = `${one("[data-path]", field)?.getAttribute("data-path")} ${field.textContent}`.toLowerCase().replaceAll("_", " ");
      field.hidden = !words.every((word) => own.includes(word));
    }
    for (const part of all("details", this.box).reverse()) {
      part.hidden = words.length > 0 && !all(".field:not([hidden])", part).length;
      if (words.length && !part.hidden) part.setAttribute("open", "");
    }
  }
}

/** @param {any} object @param {string} key */
function omit(object, key) {
  const { [key]: _, ...rest } = object;
  return rest;
}

/** @param {Schema} schema @param {Form} form @returns {boolean} */
function isObject(schema, form) {
  return Boolean(schema.properties || schema.oneOf?.some((/** @type {any} */ option) => form.resolve(option).properties));
}

/** What decides which fields there are: lengths of lists of parts, and kinds. @param {any} data @returns {string} */
function outline(data) {
  if (Array.isArray(data)) return data.some((item) => item && typeof item === "object") ? `[${data.map(outline).join()}]` : "";
  if (data && typeof data === "object") return `{${data.kind ?? ""}${Object.values(data).map(outline).join("")}}`;
  return "";
}

/** @param {any} data @param {string} path */
function valueAt(data, path) {
  let found = data;
  for (const step of path.split(".")) found = found?.[step];
  return found;
}

/** @param {any} value */
function plain(value) {
  if (Array.isArray(value)) return value.join(", ");
  if (value && typeof value === "object") return Object.entries(value).map(([key, item]) => `${key}: ${item}`).join(", ");
  return String(value);
}

/** @param {Schema} schema */
function range(schema) {
  const low = schema.minimum !== undefined ? `≥ ${schema.minimum}` : schema.exclusiveMinimum !== undefined ? `> ${schema.exclusiveMinimum}` : "";
  const high = schema.maximum !== undefined ? `≤ ${schema.maximum}` : schema.exclusiveMaximum !== undefined ? `< ${schema.exclusiveMaximum}` : "";
  return [low, high].filter(Boolean).join(", ");
}
