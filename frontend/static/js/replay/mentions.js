/** Completes `@` and a few letters of a person's name in a text field, by mouse or by keys. */

import { api } from "../api.js";
import { h } from "../dom.js";
import { t } from "../i18n.js";

const MOST = 6;

/** @typedef {{handle: string, name: string}} Person */

/** @type {Map<string, Promise<Person[]>>} */
const known = new Map();

/** @param {string} project @returns {Promise<Person[]>} */
function peopleOf(project) {
  const asked = known.get(project) ?? api(`projects/${project}/people`);
  known.set(project, asked);
  asked.catch(() => known.delete(project)); // the next letter asks again
  return asked;
}

/**
 * @param {HTMLTextAreaElement} input
 * @param {string} project
 * @returns {HTMLElement} the list, to be put behind the field
 */
export function offerMentions(input, project) {
  const list = h("ul", { class: "mentions", role: "listbox", id: `mentions-${Math.random().toString(36).slice(2)}`, "aria-label": t("People of the project"), hidden: true });
  /** @type {Person[]} */
  let offered = [];
  let chosen = 0;

  /** The letters between the last @ and the cursor; null where none is being written. */
  function begun() {
    const before = input.value.slice(0, input.selectionStart);
    return /(?:^|[^\w@.])@([\w.+%-]*)$/.exec(before)?.[1] ?? null;
  }

  function close() {
    offered = [];
    list.hidden = true;
    input.removeAttribute("aria-activedescendant");
  }

  async function offer() {
    const letters = begun();
    if (letters === null) return close();
    let people;
    try {
      people = await peopleOf(project);
    } catch {
      return close();
    }
    const wanted = letters.toLowerCase();
    offered = people.filter((p) => p.handle.startsWith(wanted) || p.name.toLowerCase().includes(wanted)).slice(0, MOST);
    chosen = 0;
    draw();
  }

  function draw() {
    if (!offered.length) return close();
    list.hidden = false;
    list.replaceChildren(
      ...offered.map((person, index) => {
        const row = h("li", { role: "option", id: `${list.id}-${index}`, "aria-selected": String(index === chosen) }, h("strong", {}, `@${person.handle}`), " ", h("span", { class: "muted" }, person.name));
        row.addEventListener("mousedown", (event) => {
          event.preventDefault();
          take(person);
        });
        return row;
      }),
    );
    input.setAttribute("aria-activedescendant", `${list.id}-${chosen}`);
  }

  /** @param {Person} person */
  function take(person) {
    const at = input.selectionStart;
    const start = at - (begun() ?? "").length;
    input.setRangeText(`${person.handle} `, start, at, "end");
    input.dispatchEvent(new Event("input", { bubbles: true }));
    close();
  }

  input.setAttribute("aria-controls", list.id);
  input.setAttribute("aria-autocomplete", "list");
  input.addEventListener("input", offer);
  input.addEventListener("blur", close);
  input.addEventListener("keydown", (event) => {
    if (!offered.length) return;
    if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      chosen = (chosen + (event.key === "ArrowDown" ? 1 : offered.length - 1)) % offered.length;
      draw();
    } else if ((event.key === "Enter" && !event.ctrlKey && !event.metaKey) || event.key === "Tab") take(offered[chosen]);
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  return list;
}
