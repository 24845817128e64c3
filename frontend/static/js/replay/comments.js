/** What people say about a trajectory, a step, or a span of a step: a thread that refreshes itself. */

import { api } from "../api.js";
import { h, toast } from "../dom.js";
import { absolute, ago } from "../format.js";
import { t } from "../i18n.js";
import { offerMentions } from "./mentions.js";

const REFRESH_MS = 5000;

/**
 * @typedef {{step: number | null, field: string, start: number | null, stop: number | null}} Anchor
 * @typedef {Anchor & {id: string, reply_to: string | null, text: string, html: string, author: string, mine: boolean, may_delete: boolean,
 *   created_at: string, edited_at: string | null, resolved_at: string | null}} Comment
 */

export class Comments {
  /**
   * @param {HTMLElement} box
   * @param {{trajectory: string, project: string, mayWrite: boolean, onGo: (anchor: Anchor) => void, onChange: () => void}} options
   */
  constructor(box, options) {
    this.options = options;
    /** @type {Comment[]} */
    this.all = [];
    this.seen = "";
    this.kept = `caravan-comment-${options.trajectory}`; // what is typed and not sent
    /** The comment that the next one answers. @type {Comment | null} */
    this.answered = null;
    /** @type {Anchor} */
    this.anchor = { step: null, field: "", start: null, stop: null };
    this.thread = h("ol", { class: "comments" });
    this.place = h("p", { class: "small muted row" });
    this.input = /** @type {HTMLTextAreaElement} */ (
      h("textarea", { class: "textarea", "aria-label": t("Comment"), maxlength: 10000, placeholder: t("Markdown; @ names a person") })
    );
    this.input.value = localStorage.getItem(this.kept) ?? "";
    this.input.addEventListener("input", () => localStorage.setItem(this.kept, this.input.value));
    const people = offerMentions(this.input, options.project);
    this.form = h("form", { class: "stack-s" }, this.place, h("div", { class: "mentioning" }, this.input, people), h("button", { class: "button button-primary" }, t("Comment")));
    this.form.addEventListener("submit", (event) => this.#send(event));
    this.input.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) /** @type {HTMLFormElement} */ (this.form).requestSubmit();
    });
    box.replaceChildren(this.thread);
    if (options.mayWrite) box.append(this.form);
    else box.append(h("p", { class: "small muted" }, t("Editors of this project can comment.")));
    this.aim(this.anchor);
    this.refresh();
    setInterval(() => document.hidden || this.refresh(), REFRESH_MS);
    document.addEventListener("visibilitychange", () => document.hidden || this.refresh());
  }

  /** @param {number} step how many comments are anchored to it */
  on(step) {
    return this.all.filter((comment) => comment.step === step).length;
  }

  /** @param {number} step @param {string} field @returns {import("./text.js").Mark[]} */
  marks(step, field) {
    return this.all
      .filter((c) => c.step === step && c.field === field && c.start !== null && !c.resolved_at)
      .map((c) => ({ start: Number(c.start), stop: Number(c.stop), class: "commented", id: c.id }));
  }

  /** Set what the next comment is about. @param {Anchor} anchor */
  aim(anchor) {
    this.anchor = anchor;
    this.answered = null;
    this.place.replaceChildren(t("On: %(place)s", { place: placeOf(anchor) }));
    if (anchor.step === null) return;
    const wider = h("button", { type: "button", class: "button button-quiet button-small" }, t("Whole trajectory"));
    wider.addEventListener("click", () => this.aim({ step: null, field: "", start: null, stop: null }));
    this.place.append(wider);
  }

  /** Set that the next comment answers one. @param {Comment} comment */
  #answer(comment) {
    this.answered = comment;
    const instead = h("button", { type: "button", class: "button button-quiet button-small" }, t("Write a new comment instead"));
    instead.addEventListener("click", () => this.aim({ step: null, field: "", start: null, stop: null }));
    this.place.replaceChildren(t("Answer to %(name)s", { name: comment.author }), instead);
    this.input.focus();
  }

  /** @param {Anchor} anchor */
  write(anchor) {
    this.aim(anchor);
    this.input.focus();
  }

  /** @param {string} id */
  find(id) {
    return this.all.find((comment) => comment.id === id);
  }

  async refresh() {
    let answer;
    try {
      answer = await api(`trajectories/${this.options.trajectory}/comments`);
    } catch {
      return; // the next refresh tries again; what is shown stays
    }
    const seen = JSON.stringify(answer.comments);
    if (seen === this.seen) return;
    this.seen = seen;
    this.all = answer.comments;
    this.#draw();
    this.options.onChange();
  }

  #draw() {
    if (this.thread.contains(document.activeElement) && document.activeElement?.matches("textarea")) return; // being edited
    const ids = new Set(this.all.map((comment) => comment.id));
    const roots = this.all.filter((comment) => !comment.reply_to || !ids.has(comment.reply_to));
    this.thread.replaceChildren(
      ...roots.map((root) => {
        const entry = this.#entry(root);
        const answers = this.all.filter((comment) => comment.reply_to === root.id);
        if (answers.length) entry.append(h("ol", { class: "comments replies" }, ...answers.map((comment) => this.#entry(comment))));
        return entry;
      }),
    );
    if (!this.all.length) this.thread.append(h("li", { class: "muted" }, t("No comments yet. Press c to write one.")));
  }

  /** @param {Comment} comment */
  #entry(comment) {
    const at = Date.parse(comment.created_at) / 1000;
    const go = h("a", { href: `#comment=${comment.id}` }, placeOf(comment));
    go.addEventListener("click", (event) => {
      event.preventDefault();
      this.options.onGo(comment);
    });
    const body = h("div", { class: "comment-body" });
    body.append(sanitised(comment.html));
    const item = h(
      "li",
      { class: comment.resolved_at ? "comment comment-resolved" : "comment", id: comment.id },
      h(
        "div",
        { class: "row small" },
        h("strong", {}, comment.author),
        h("time", { datetime: comment.created_at, "data-time": true, class: "faint", title: absolute(at) }, ago(at)),
        comment.edited_at ? h("span", { class: "faint" }, t("edited")) : null,
        comment.resolved_at ? h("span", { class: "badge badge-good" }, t("resolved")) : null,
        go,
      ),
      body,
    );
    if (this.options.mayWrite) item.append(this.#actions(comment, item, body));
    return item;
  }

  /** @param {Comment} comment @param {HTMLElement} item @param {HTMLElement} body */
  #actions(comment, item, body) {
    const button = (/** @type {string} */ text, /** @type {() => void} */ act) =>
      h("button", { type: "button", class: "button button-quiet button-small", onclick: act }, text);
    const row = h("div", { class: "row" });
    const resolved = comment.resolved_at !== null;
    row.append(button(t("Answer"), () => this.#answer(comment)));
    row.append(button(resolved ? t("Open again") : t("Resolve"), () => this.#change(comment, { resolved: !resolved })));
    if (comment.mine) row.append(button(t("Edit"), () => this.#edit(comment, item, body, row)));
    if (comment.may_delete) {
      row.append(button(t("Delete"), () => window.confirm(t("Delete this comment?")) && this.#change(comment, null)));
    }
    return row;
  }

  /** @param {Comment} comment @param {HTMLElement} item @param {HTMLElement} body @param {HTMLElement} row */
  #edit(comment, item, body, row) {
    const input = /** @type {HTMLTextAreaElement} */ (h("textarea", { class: "textarea", "aria-label": t("Comment") }));
    input.value = comment.text;
    const done = () => {
      item.focus();
      this.#draw();
    };
    const save = h("button", { type: "button", class: "button button-small" }, t("Save"));
    save.addEventListener("click", async () => (await this.#change(comment, { text: input.value })) && done());
    const cancel = h("button", { type: "button", class: "button button-quiet button-small" }, t("Cancel"));
    cancel.addEventListener("click", done);
    body.replaceChildren(input);
    row.replaceChildren(save, cancel);
    input.focus();
  }

  /**
   * @param {Comment} comment
   * @param {{text?: string, resolved?: boolean} | null} change null: delete it
   * @returns {Promise<boolean>} whether it was done
   */
  async #change(comment, change) {
    try {
      await api(`comments/${comment.id}`, change ? { method: "PATCH", body: change } : { method: "DELETE" });
    } catch (problem) {
      toast(/** @type {Error} */ (problem).message, "bad");
      return false;
    }
    await this.refresh();
    return true;
  }

  /** @param {Event} event */
  async #send(event) {
    event.preventDefault();
    const { step, field, start, stop } = this.anchor;
    const span = start === null ? null : [start, stop];
    const text = this.input.value;
    const body = this.answered ? { text, reply_to: this.answered.id } : { text, step, field, span };
    try {
      await api(`trajectories/${this.options.trajectory}/comments`, { body });
    } catch (problem) {
      toast(/** @type {Error} */ (problem).message, "bad");
      return;
    }
    this.input.value = "";
    localStorage.removeItem(this.kept);
    this.aim(this.anchor);
    await this.refresh();
  }
}

/** @param {Anchor} anchor */
function placeOf({ step, field, start, stop }) {
  if (step === null) return t("the trajectory");
  if (start === null) return t("step %(step)s", { step });
  return t("step %(step)s, %(field)s, characters %(start)s to %(stop)s", { step, field, start, stop: Number(stop) });
}

/** Markdown that the server rendered and cleaned; parsed without running or fetching anything. @param {string} html */
function sanitised(html) {
  const parsed = new DOMParser().parseFromString(html, "text/html");
  const out = document.createDocumentFragment();
  out.append(...parsed.body.childNodes);
  return out;
}
