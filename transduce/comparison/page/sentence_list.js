/* The list of sentences: sorted, filtered, and shown some at a time. */

import { element, fill } from "./dom.js";
import { sentence } from "./sentence.js";

const AT_ONCE = 25;
const TIE = 1e-9;
const ORDERS = {
  difference: ["Largest difference", (one, other) => Math.abs(other.gain) - Math.abs(one.gain)],
  better: ["Best for the system", (one, other) => other.gain - one.gain],
  worse: ["Worst for the system", (one, other) => one.gain - other.gain],
  line: ["Line", (one, other) => one.row.line - other.row.line],
  length: ["Longest source", (one, other) => other.row.source.length - one.row.source.length],
};
const OUTCOMES = {
  all: ["All", () => true],
  win: ["Better", ({ gain }) => gain > TIE],
  tie: ["Equal", ({ gain }) => Math.abs(gain) <= TIE],
  loss: ["Worse", ({ gain }) => gain < -TIE],
};

export class Sentences {
  constructor(container, view) {
    this.view = view;
    this.list = element("ol", { class: "sentence-list" });
    this.count = element("p", { class: "hint", role: "status" });
    this.more = element("button", { type: "button", click: () => this.#extend() }, "Show more");
    const typed = { type: "search", id: "search", placeholder: "word or phrase", input: () => this.#refresh() };
    this.search = element("input", typed);
    this.order = this.#select("order", labelsOf(ORDERS));
    this.outcome = this.#select("outcome", labelsOf(OUTCOMES));
    this.group = this.#select("group", groupsOf(view));
    const filters = element(
      "div",
      { class: "filters" },
      labelled("Search", this.search),
      labelled("Sort by", this.order),
      labelled("Outcome", this.outcome),
      labelled("Group", this.group),
    );
    fill(container, element("h2", {}, "Sentences"), filters, this.count, this.list, this.more);
  }

  /** Compare the baseline with the system of this number. */
  show(number) {
    this.number = number;
    const sign = this.view.sentence_higher_is_better ? 1 : -1;
    this.items = this.view.rows.map((row) => ({ row, gain: sign * (row.scores[number] - row.scores[0]) }));
    this.#refresh();
  }

  #select(id, options) {
    const made = options.map(([value, label]) => element("option", { value }, label));
    return element("select", { id, change: () => this.#refresh() }, ...made);
  }

  #refresh() {
    const wanted = this.search.value.trim().toLowerCase();
    const [group, fits] = [this.group.value, OUTCOMES[this.outcome.value][1]];
    this.found = this.items
      .filter((item) => fits(item) && (!group || item.row.groups.includes(Number(group))) && has(item.row, wanted))
      .sort(ORDERS[this.order.value][1]);
    fill(this.list);
    fill(this.count, `${this.found.length.toLocaleString("en")} sentences${this.#among()}`);
    this.#extend();
  }

  /** Said where the page has only the sentences that differ most. */
  #among() {
    const listed = this.view.rows.length;
    return listed < this.view.sentences ? ` of the ${listed.toLocaleString("en")} that differ most` : "";
  }

  #extend() {
    const from = this.list.children.length;
    const next = this.found.slice(from, from + AT_ONCE);
    this.list.append(...next.map((item) => sentence(this.view, this.number, item)));
    this.more.hidden = this.list.children.length >= this.found.length;
  }
}

function has(row, wanted) {
  return !wanted || [row.source, ...row.references, ...row.outputs].some((text) => text.toLowerCase().includes(wanted));
}

function labelsOf(choices) {
  return Object.entries(choices).map(([value, [label]]) => [value, label]);
}

function groupsOf(view) {
  const named = (view.pairs[0]?.groups ?? []).map(({ kind, name }, n) => [String(n), `${kind}: ${name}`]);
  return [["", "All"], ...named];
}

function labelled(text, control) {
  return element("label", {}, text, control);
}
