/** The steps of one trajectory, fetched in pages as they come into view; old pages are let go. */

import { api } from "../api.js";

const PAGE = 50;
const KEPT = 40; // pages

/**
 * @typedef {{id: string, name: string, arguments: Record<string, any> | null, result: string, error: string | null, duration_s: number}} Call
 * @typedef {{index: number, segment: number, start: number, stop: number, text: string, answer: string | null, reward: number | null,
 *   detour: boolean, call: Call | null, more: Record<string, number>, embedded?: Record<string, import("./text.js").Embedded[]>, tokens?: Token[]}} Step
 * @typedef {{id: number, text: string | null, logprob: number, version: number, trained: boolean}} Token
 * @typedef {{attempt: number, step: number, version: number, tokens: number, left_out: string}} TrainedRecord
 * @typedef {{records: TrainedRecord[], record: number | null, start: number, stop: number,
 *   columns: Record<string, (number | string | null)[] | null> | null}} TrainedStep what training saw of a step's tokens
 * @typedef {{tools: string[], errors: string[], tool: number[], error: number[], duration_s: (number|null)[], tokens: number[],
 *   chars: number[], segment: number[], reward: (number|null)[], detour: boolean[], answer: boolean[]}} Outline
 */

export class Steps {
  /**
   * @param {string} trajectory its id
   * @param {number} count
   */
  constructor(trajectory, count) {
    this.trajectory = trajectory;
    this.count = count;
    /** @type {Map<number, Step[]>} by page, the longest unused first */
    this.pages = new Map();
    /** @type {Map<number, Promise<void>>} */
    this.coming = new Map();
    /** @type {((first: number, last: number) => void)[]} told what arrived */
    this.listeners = [];
    /** @type {((problem: Error) => void)[]} */
    this.troubled = [];
  }

  /** @param {number} index @returns {Step | undefined} */
  get(index) {
    return this.pages.get(Math.floor(index / PAGE))?.[index % PAGE];
  }

  /** See to it that these steps come. @param {number} first @param {number} last */
  want(first, last) {
    for (let page = Math.floor(first / PAGE); page <= Math.floor(last / PAGE); page += 1) {
      const known = this.pages.get(page);
      if (known) {
        this.pages.delete(page);
        this.pages.set(page, known);
      } else if (page * PAGE < this.count && !this.coming.has(page)) {
        this.coming.set(page, this.#fetch(page));
      }
    }
  }

  /** @param {number} index @returns {Promise<Step & {tokens: Token[]}>} */
  async whole(index) {
    const answer = await api(`trajectories/${this.trajectory}/steps?from=${index}&count=1`);
    return answer.steps[0];
  }

  /**
   * What training saw of a step's tokens.
   * @param {number} index
   * @param {number} [record] which of the trainer's steps, the newest unless given
   * @returns {Promise<TrainedStep>}
   */
  trained(index, record = 0) {
    return api(`trajectories/${this.trajectory}/steps/${index}/trained?record=${record}`);
  }

  /** @param {number} page */
  async #fetch(page) {
    try {
      const first = page * PAGE;
      const answer = await api(`trajectories/${this.trajectory}/steps?from=${first}&count=${PAGE}&tokens=false`);
      this.pages.set(page, answer.steps);
      for (const old of this.pages.keys()) {
        if (this.pages.size <= KEPT) break;
        this.pages.delete(old);
      }
      for (const listener of this.listeners) listener(first, first + answer.steps.length - 1);
    } catch (problem) {
      for (const listener of this.troubled) listener(/** @type {Error} */ (problem));
    } finally {
      this.coming.delete(page);
    }
  }
}
