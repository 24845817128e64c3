/** A text area with line numbers and marked lines. Tab indents, Esc lets Tab leave. */

const MOST_NUMBERED = 5000; // lines

export class Editor {
  /**
   * @param {HTMLTextAreaElement} area
   * @param {HTMLElement} gutter
   * @param {() => void} changed
   */
  constructor(area, gutter, changed) {
    this.area = area;
    this.gutter = gutter;
    this.leaving = false;
    /** @type {Set<number>} */
    this.marked = new Set();
    area.addEventListener("input", () => {
      this.number();
      changed();
    });
    area.addEventListener("scroll", () => {
      gutter.scrollTop = area.scrollTop;
    });
    area.addEventListener("keydown", (event) => this.key(event));
    this.changed = changed;
    this.number();
  }

  get text() {
    return this.area.value;
  }

  /** @param {string} text */
  replace(text) {
    if (text === this.area.value) return;
    const { scrollTop, selectionStart } = this.area;
    this.area.value = text;
    this.area.selectionStart = this.area.selectionEnd = Math.min(selectionStart, text.length);
    this.area.scrollTop = scrollTop;
    this.number();
  }

  /** @param {Set<number | null>} lines */
  mark(lines) {
    this.marked = /** @type {Set<number>} */ (lines);
    this.number();
  }

  /** @param {number | null} line */
  goTo(line) {
    if (!line) return;
    const lines = this.area.value.split("\n");
    const start = lines.slice(0, line - 1).join("\n").length + (line > 1 ? 1 : 0);
    this.area.focus();
    this.area.setSelectionRange(start, start + lines[line - 1].length);
    this.area.scrollTop = Math.max(0, (line - 6) * this.lineHeight());
  }

  lineHeight() {
    return parseFloat(getComputedStyle(this.area).lineHeight) || 19;
  }

  number() {
    const lines = this.area.value.split("\n").length;
    const count = lines > MOST_NUMBERED ? 0 : lines; // each number is an element
    while (this.gutter.children.length > count) this.gutter.lastElementChild?.remove();
    while (this.gutter.children.length < count) {
      const line = document.createElement("div");
      line.textContent = String(this.gutter.children.length + 1);
      this.gutter.append(line);
    }
    for (let i = 0; i < count; i += 1) this.gutter.children[i].className = this.marked.has(i + 1) ? "marked" : "";
    this.gutter.scrollTop = this.area.scrollTop;
  }

  /** @param {KeyboardEvent} event */
  key(event) {
    if (event.key === "Escape") {
      this.leaving = true;
      event.stopPropagation();
      return;
    }
    if (event.key === "Tab" && !event.shiftKey && !this.leaving) {
      event.preventDefault();
      const at = this.area.selectionStart;
      this.area.setRangeText("  ", at, this.area.selectionEnd, "end");
      this.number();
      this.changed();
    }
    if (event.key !== "Shift") this.leaving = false;
  }
}
