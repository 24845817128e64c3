/** A list of any length of which only what is in view is in the page. Heights are learned as drawn. */

const MARGIN = 800; // pixels drawn above and below the view

/** Prefix sums over heights that change one at a time (a Fenwick tree). */
class Heights {
  /** @param {Float64Array} values */
  constructor(values) {
    this.values = values;
    this.tree = new Float64Array(values.length + 1);
    for (let i = 0; i < values.length; i += 1) {
      this.tree[i + 1] += values[i];
      const parent = i + 1 + ((i + 1) & -(i + 1));
      if (parent <= values.length) this.tree[parent] += this.tree[i + 1];
    }
  }

  /** The sum of the first `count` heights. @param {number} count */
  before(count) {
    let sum = 0;
    for (let i = count; i > 0; i -= i & -i) sum += this.tree[i];
    return sum;
  }

  /** @param {number} index @param {number} value @returns {number} by how much it grew */
  set(index, value) {
    const change = value - this.values[index];
    if (!change) return 0;
    this.values[index] = value;
    for (let i = index + 1; i <= this.values.length; i += i & -i) this.tree[i] += change;
    return change;
  }

  /** The item at a distance from the top. @param {number} distance */
  at(distance) {
    let index = 0;
    let left = distance;
    for (let step = 1 << Math.floor(Math.log2(Math.max(1, this.values.length))); step; step >>= 1) {
      if (index + step <= this.values.length && this.tree[index + step] <= left) {
        index += step;
        left -= this.tree[index];
      }
    }
    return Math.min(index, this.values.length - 1);
  }
}

export class WindowedList {
  /**
   * @param {HTMLElement} scroller
   * @param {{heights: Float64Array, draw: (index: number) => HTMLElement, wanted: (first: number, last: number) => void}} options
   *   `heights` are estimates in pixels; `wanted` is told which items come into view.
   */
  constructor(scroller, options) {
    this.scroller = scroller;
    this.options = options;
    this.heights = new Heights(options.heights);
    this.count = options.heights.length;
    /** @type {Map<number, HTMLElement>} */
    this.drawn = new Map();
    /** @type {number | null} the item to keep at the top until the reader scrolls */
    this.pinned = null;
    this.space = document.createElement("div");
    this.space.className = "windowed-space";
    this.block = document.createElement("div");
    this.block.className = "windowed-block";
    this.space.append(this.block);
    scroller.replaceChildren(this.space);
    scroller.classList.add("windowed");
    this.sizes = new ResizeObserver((entries) => this.#measured(entries));
    scroller.addEventListener("scroll", () => this.update(), { passive: true });
    for (const kind of ["wheel", "touchmove", "pointerdown", "keydown"]) {
      scroller.addEventListener(kind, () => (this.pinned = null), { passive: true });
    }
    new ResizeObserver(() => this.update()).observe(scroller);
    this.update();
  }

  /** Draw what is in view, drop what is not. */
  update() {
    const top = this.scroller.scrollTop;
    const first = this.heights.at(Math.max(0, top - MARGIN));
    const last = this.heights.at(top + this.scroller.clientHeight + MARGIN);
    this.space.style.height = `${this.heights.before(this.count)}px`;
    if (!this.count) return;
    for (const [index, element] of this.drawn) {
      if (index < first || index > last) this.#drop(index, element);
    }
    let before = /** @type {ChildNode | null} */ (this.block.firstChild);
    for (let index = first; index <= last; index += 1) {
      const known = this.drawn.get(index);
      if (known) {
        before = known.nextSibling;
        continue;
      }
      this.block.insertBefore(this.#make(index), before);
    }
    this.block.style.transform = `translateY(${this.heights.before(first)}px)`;
    this.options.wanted(first, last);
  }

  /** Draw an item anew, for example because its data arrived. @param {number} index */
  redraw(index) {
    const old = this.drawn.get(index);
    if (!old) return;
    this.sizes.unobserve(old);
    old.replaceWith(this.#make(index));
  }

  /** Bring an item to the top of the view. @param {number} index */
  goTo(index) {
    this.pinned = index;
    this.scroller.scrollTop = this.heights.before(index);
    this.update();
  }

  /** The first item in view. */
  get top() {
    return this.heights.at(this.scroller.scrollTop + 1);
  }

  /** @param {number} index */
  #make(index) {
    const element = this.options.draw(index);
    element.dataset.index = String(index);
    this.drawn.set(index, element);
    this.sizes.observe(element);
    return element;
  }

  /** @param {number} index @param {HTMLElement} element */
  #drop(index, element) {
    if (element.contains(document.activeElement)) this.scroller.focus({ preventScroll: true });
    this.sizes.unobserve(element);
    element.remove();
    this.drawn.delete(index);
  }

  /** Learn real heights without moving what is being read. @param {ResizeObserverEntry[]} entries */
  #measured(entries) {
    const anchor = this.top;
    let moved = 0;
    let changed = false;
    for (const entry of entries) {
      const index = Number(/** @type {HTMLElement} */ (entry.target).dataset.index);
      if (this.drawn.get(index) !== entry.target) continue;
      const grown = this.heights.set(index, entry.borderBoxSize[0].blockSize);
      changed ||= grown !== 0;
      if (index < anchor) moved += grown;
    }
    if (!changed) return;
    this.space.style.height = `${this.heights.before(this.count)}px`;
    if (this.pinned !== null) this.scroller.scrollTop = this.heights.before(this.pinned);
    else if (moved) this.scroller.scrollTop += moved;
    this.update();
  }
}
