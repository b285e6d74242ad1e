/* Pairs to leaf through: one is shown, and buttons or the left and right arrow keys show the next. */

import { element, fill } from "./dom.js";
import { visible } from "./visible.js";

/** A viewer of pairs with file, line, source, target and detail. */
export class Leaves {
  constructor(pairs, label, figures = () => null) {
    this.pairs = pairs;
    this.figures = figures;
    this.at = 0;
    this.place = element("p", { class: "hint", "aria-live": "polite" });
    this.texts = element("dl", { class: "sample" });
    const turn = (by, text) => element("button", { type: "button", click: () => this.turn(by) }, text);
    this.back = turn(-1, "Previous");
    this.forth = turn(1, "Next");
    const turning = pairs.length > 1 ? element("div", { class: "choices" }, this.back, this.forth) : null;
    this.element = element("div", { class: "leaves", role: "group", "aria-label": label, tabindex: "0" }, turning, this.place, this.texts);
    this.element.addEventListener("keydown", (event) => this.onKey(event));
    this.show();
  }

  onKey(event) {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (!by) return;
    event.preventDefault();
    event.stopPropagation();
    this.turn(by);
  }

  turn(by) {
    this.at = Math.min(this.pairs.length - 1, Math.max(0, this.at + by));
    this.show();
  }

  show() {
    const pair = this.pairs[this.at];
    const number = this.pairs.length > 1 ? `${this.at + 1} of ${this.pairs.length}: ` : "";
    fill(this.place, number, ...visible(pair.line ? `${pair.file}:${pair.line}` : pair.file));
    fill(this.texts, text("source", pair.source), text("target", pair.target), note(pair.detail), this.figures(pair));
    this.back.disabled = this.at === 0;
    this.forth.disabled = this.at === this.pairs.length - 1;
  }
}

function text(name, value) {
  return element("div", {}, element("dt", {}, name), element("dd", { dir: "auto" }, ...visible(value)));
}

function note(detail) {
  return detail ? element("div", {}, element("dt", {}, "look at"), element("dd", { class: "detail-of-pair" }, ...visible(detail))) : null;
}
