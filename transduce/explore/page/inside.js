/* The panel Look inside: all heads small, one head large, its statistics and switch, positions and masks. */

import { describeHead, statisticsList } from "./statistics.js";
import { onSchemeChange, palette } from "./colours.js";
import { element, fill } from "./dom.js";
import { Enlarged } from "./enlarged.js";
import { drawHeads, isOff, markHead } from "./heads.js";
import { drawMasks, drawPositions } from "./positions.js";
import { drawResult } from "./result.js";
import { headMap, USES } from "./uses.js";
import { describeRow } from "./words.js";

const LABELS = [
  "The small maps are numbered layer.head.",
  "Tokens may be parts of words: a leading dot marks a token that continues a word, \u2423 is a space,",
  "\u2039start\u203a and \u2039end\u203a are the start and end tokens.",
].join(" ");

/**
 * The panel. `actions` come from outside: `switchOff(heads)` requests the view without these heads (null if there is no
 * server); `saves` lists a [label, function of the panel] pair for each save button.
 */
export class Inside {
  constructor(container, actions) {
    this.actions = actions;
    this.view = null;
    this.whole = null; // the view with all heads on, for comparison
    this.chosen = { part: "cross", layer: 0, head: 0 };
    this.enlarged = new Enlarged();
    this.result = element("div", { class: "result" });
    this.parts = element("div", { class: "choices", role: "group", "aria-label": "Type of attention" });
    this.what = element("p", { class: "hint" });
    this.heads = element("div", { class: "heads", role: "group", "aria-label": "All heads, one row per layer" });
    this.name = element("h2");
    this.nature = element("p", { class: "nature" });
    this.statistics = element("div");
    this.switches = element("div", { class: "switches" });
    this.reading = element("ol", { class: "reading" });
    this.positions = element("div");
    this.masks = element("div", { class: "masks" });
    fill(container, ...this.#layout());
    onSchemeChange(() => this.view && this.draw());
  }

  /** Show a view; the same head stays selected if the model has it. */
  show(view) {
    this.view = view;
    if (!view.off.length) this.whole = view;
    const { chosen } = this;
    const part = view.maps[chosen.part].length ? chosen.part : Object.keys(USES).find((name) => view.maps[name].length);
    const layers = view.maps[part];
    const layer = Math.min(chosen.layer, layers.length - 1);
    this.chosen = { part, layer, head: Math.min(chosen.head, layers[layer].length - 1) };
    this.draw();
  }

  draw() {
    this.colours = palette();
    drawResult(this.result, this.view, this.whole);
    drawPositions(this.positions, this.view, this.colours);
    drawMasks(this.masks, this.view, this.colours);
    this.#drawPart();
    this.#drawHead();
  }

  #layout() {
    const save = ([name, act]) => element("button", { type: "button", click: () => act(this) }, name);
    const title = element("div", { class: "title" }, this.name, this.switches);
    const section = (name, content) => element("section", {}, element("h2", {}, name), content);
    return [
      this.result,
      element(
        "div",
        { class: "toolbar" },
        this.parts,
        element("div", { class: "saves" }, ...this.actions.saves.map(save)),
      ),
      this.what,
      element(
        "div",
        { class: "explorer" },
        element("div", { class: "overview" }, this.heads, legend()),
        element("div", { class: "detail" }, title, this.nature, this.enlarged.node),
        element("div", { class: "numbers" }, this.statistics, element("p", { class: "hint" }, LABELS)),
      ),
      element("details", { class: "as-text" }, element("summary", {}, "This head as text"), this.reading),
      section("Positional encoding", this.positions),
      section("Masks", this.masks),
    ];
  }

  #choosePart(part) {
    this.chosen = { part, layer: 0, head: 0 };
    this.#drawPart();
    this.#drawHead();
  }

  #drawPart() {
    const { part } = this.chosen;
    const button = ([name, { title }]) =>
      element(
        "button",
        { type: "button", "aria-pressed": String(name === part), click: () => this.#choosePart(name) },
        title,
      );
    const present = Object.entries(USES).filter(([name]) => this.view.maps[name].length);
    fill(this.parts, ...present.map(button));
    fill(this.what, USES[part].what);
    drawHeads(this.heads, this.view, part, this.colours, (layer, head) => {
      this.chosen = { part, layer, head };
      this.#drawHead();
    });
  }

  #drawHead() {
    const { view, chosen } = this;
    const map = (this.map = headMap(view, chosen));
    const numbers = view.statistics[chosen.part][chosen.layer][chosen.head];
    const attends = `Attends ${describeHead(numbers, chosen.part, map.columns.length)}.`;
    markHead(this.heads, chosen, view.maps[chosen.part][0].length);
    fill(this.name, `Layer ${chosen.layer + 1}, head ${chosen.head + 1}`);
    fill(this.nature, isOff(view, chosen) ? "Switched off: its output is replaced by zeros." : attends);
    fill(this.statistics, statisticsList(numbers, chosen.part, map.columns.length));
    fill(this.reading, ...map.rows.map((_, row) => element("li", {}, describeRow(map, chosen.part, row))));
    if (this.actions.switchOff && view.can_switch_off) this.#drawSwitches();
    else fill(this.switches);
    this.enlarged.show(map, chosen, this.colours);
  }

  #drawSwitches() {
    const focused = this.switches.contains(document.activeElement);
    const some = this.view.off.length > 0;
    const allOn = element("button", { type: "button", click: () => this.actions.switchOff([]) }, "Switch all on");
    const hint = element("span", { class: "hint" }, "Switch it off to translate the sentence without it.");
    fill(this.switches, this.#headSwitch(), some ? allOn : hint);
    if (focused) this.switches.firstChild.focus();
  }

  #headSwitch() {
    const { part, layer, head } = this.chosen;
    const off = isOff(this.view, this.chosen);
    const others = this.view.off.filter((one) => !(one[0] === part && one[1] === layer && one[2] === head));
    const turned = off ? others : [...others, [part, layer, head]];
    return element(
      "button",
      {
        type: "button",
        role: "switch",
        "aria-checked": String(!off),
        class: "switch",
        click: () => this.actions.switchOff(turned),
      },
      element("span", { class: "knob", "aria-hidden": "true" }),
      off ? "This head is off" : "This head is on",
    );
  }
}

function legend() {
  return element(
    "p",
    { class: "legend" },
    element("span", {}, "0"),
    element("span", { class: "weights", "aria-hidden": "true" }),
    element("span", {}, "100\u202f%"),
    element("span", { class: "hint" }, "of a query\u2019s attention"),
  );
}
