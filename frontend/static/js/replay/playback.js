/** Plays a trajectory step by step: a tool call lasts as long as it took, divided by the speed. */

const LEAST_MS = 120;
const MOST_MS = 4000;
const READING_MS = 700; // for what the policy wrote

export class Playback {
  /**
   * @param {HTMLButtonElement} button
   * @param {HTMLSelectElement} speed
   * @param {{last: number, current: () => number, seconds: (step: number) => number, onStep: (step: number) => void}} options
   */
  constructor(button, speed, options) {
    this.button = button;
    this.speed = speed;
    this.options = options;
    this.timer = 0;
    button.addEventListener("click", () => this.toggle());
    speed.addEventListener("change", () => {
      if (!this.timer) return;
      this.stop();
      this.toggle();
    });
  }

  toggle() {
    if (this.timer) return this.stop();
    if (this.options.current() >= this.options.last) this.options.onStep(0);
    this.button.setAttribute("aria-pressed", "true");
    this.#wait();
  }

  stop() {
    clearTimeout(this.timer);
    this.timer = 0;
    this.button.setAttribute("aria-pressed", "false");
  }

  #wait() {
    const step = this.options.current();
    const ms = (READING_MS + 1000 * this.options.seconds(step)) / Number(this.speed.value);
    this.timer = window.setTimeout(
      () => {
        if (step >= this.options.last) return this.stop();
        this.options.onStep(step + 1);
        this.#wait();
      },
      Math.min(MOST_MS, Math.max(LEAST_MS, ms)),
    );
  }
}
