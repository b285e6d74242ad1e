/* Look inside: all heads small, one head large, its character, its switch; positions and masks. */

import { characterList, nature } from "./character.js";
import { onSchemeChange, palette } from "./colours.js";
import { compared } from "./difference.js";
import { element, fill } from "./dom.js";
import { drawHeads, isOff, markHead } from "./heads.js";
import { Lines } from "./lines.js";
import { Matrix } from "./matrix.js";
import { label, percent } from "./pieces.js";
import { drawMasks, drawPositions } from "./positions.js";
import { headMap, headName, USES } from "./uses.js";

const WIDE_ENOUGH = 720; // for the table and the lines side by side
const NARROWEST_LINES = 280;
const NOWHERE = { row: -1, column: -1 };
const MOST_NAMED = 4; // tokens a sentence of the reading list names

/**
 * The panel. `actions` are what it cannot do by itself: `switchOff(heads)` asks for the view without these heads (none
 * where there is no server), `saves` are [name, function of the panel] pairs, a button each.
 */
export class Inside {
  constructor(container, actions) {
    this.actions = actions;
    this.view = null;
    this.whole = null; // the view with every head on, to compare with
    this.chosen = { part: "source", layer: 0, head: 0 };
    this.look = NOWHERE;
    this.matrix = new Matrix((row, column, byKey) => this.#lookAt({ row, column }, byKey));
    this.lines = new Lines((row, column) => this.#lookAt({ row, column }, false));
    this.parts = element("div", { class: "choices", role: "group", "aria-label": "Which attention" });
    this.result = element("div", { class: "result" });
    this.heads = element("div", { class: "heads", role: "group", "aria-label": "All heads: layers down, heads across" });
    this.what = element("p", { class: "hint" });
    this.name = element("h2");
    this.nature = element("p", { class: "nature" });
    this.readout = element("p", { class: "readout" });
    this.spoken = element("p", { class: "unseen", role: "status" });
    this.character = element("div");
    this.switches = element("div", { class: "switches" });
    this.reading = element("ol", { class: "reading" });
    this.positions = element("div");
    this.masks = element("div", { class: "masks" });
    this.large = element("div", { class: "large" });
    fill(container, ...this.#layout());
    new ResizeObserver(() => this.#drawLarge()).observe(this.large);
    onSchemeChange(() => this.view && this.draw());
  }

  /** Show a view; the choice of head stays where the new model has such a head. */
  show(view) {
    this.view = view;
    if (!view.off.length) this.whole = view;
    const layers = view.maps[this.chosen.part];
    const layer = Math.min(this.chosen.layer, layers.length - 1);
    this.chosen = { ...this.chosen, layer, head: Math.min(this.chosen.head, layers[layer].length - 1) };
    this.look = NOWHERE;
    this.draw();
  }

  draw() {
    this.colours = palette();
    this.#drawParts();
    this.#drawResult();
    drawPositions(this.positions, this.view, this.colours);
    drawMasks(this.masks, this.view, this.colours);
    this.#drawHeads();
    this.#drawHead();
  }

  choose(change) {
    this.chosen = { ...this.chosen, ...change };
    this.look = NOWHERE;
    if ("part" in change) {
      this.#drawParts();
      this.#drawHeads();
    }
    this.#drawHead();
  }

  #layout() {
    const saves = this.actions.saves.map(([name, save]) => element("button", { type: "button", click: () => save(this) }, name));
    return [
      this.result,
      element("div", { class: "toolbar" }, this.parts, element("div", { class: "saves" }, ...saves)),
      this.what,
      element(
        "div",
        { class: "explorer" },
        element("div", { class: "overview" }, this.heads, legend()),
        element("div", { class: "detail" }, element("div", { class: "title" }, this.name, this.switches), this.nature, this.readout, this.spoken, this.large),
        element("div", { class: "numbers" }, this.character, marksNote()),
      ),
      element("details", { class: "as-text" }, element("summary", {}, "This head in words"), this.reading),
      element("section", { class: "below" }, element("h2", {}, "Positional encoding"), this.positions),
      element("section", { class: "below" }, element("h2", {}, "Masks"), this.masks),
    ];
  }

  #drawParts() {
    const button = ([part, { title }]) =>
      element("button", { type: "button", "aria-pressed": String(part === this.chosen.part), click: () => this.choose({ part, layer: 0, head: 0 }) }, title);
    fill(this.parts, ...Object.entries(USES).map(button));
    fill(this.what, USES[this.chosen.part].what);
  }

  #drawHeads() {
    drawHeads(this.heads, this.view, this.chosen.part, this.colours, (layer, head) => this.choose({ layer, head }));
  }

  #drawHead() {
    const { view, chosen } = this;
    const numbers = view.characters[chosen.part][chosen.layer][chosen.head];
    this.map = headMap(view, chosen);
    markHead(this.heads, chosen, view.maps[chosen.part][0].length);
    fill(this.name, `Layer ${chosen.layer + 1}, head ${chosen.head + 1}`);
    fill(this.nature, isOff(view, chosen) ? "Switched off: it still looks, but says nothing." : `Looks ${nature(numbers, chosen.part, this.map.columns.length)}.`);
    fill(this.character, characterList(numbers, chosen.part, this.map.columns.length));
    fill(this.reading, ...this.map.rows.map((_, row) => element("li", {}, this.#sentence(row))));
    this.#drawSwitches();
    this.#drawLarge();
    this.#lookAt(NOWHERE, false);
  }

  #drawLarge() {
    if (!this.map || !this.large.clientWidth) return;
    const room = this.large.clientWidth;
    const name = headName(this.chosen);
    this.matrix.draw(this.map, room >= WIDE_ENOUGH ? room * 0.58 : room, this.colours, name);
    const rest = room - this.matrix.layout.width - 24;
    const beside = room >= WIDE_ENOUGH && rest >= NARROWEST_LINES;
    this.lines.draw(this.map, beside ? rest : Math.min(room, 560), name);
    if (!this.large.firstChild) fill(this.large, element("div", { class: "scrolling" }, this.matrix.node), this.lines.node);
    this.large.classList.toggle("beside", beside);
    this.matrix.mark(this.look);
    this.lines.mark(this.look);
  }

  #drawSwitches() {
    if (!this.actions.switchOff) return;
    const focused = this.switches.contains(document.activeElement);
    const { part, layer, head } = this.chosen;
    const off = isOff(this.view, this.chosen);
    const others = this.view.off.filter((one) => !(one[0] === part && one[1] === layer && one[2] === head));
    fill(
      this.switches,
      element(
        "button",
        { type: "button", role: "switch", "aria-checked": String(!off), class: "switch", click: () => this.actions.switchOff(off ? others : [...others, [part, layer, head]]) },
        element("span", { class: "knob", "aria-hidden": "true" }),
        off ? "This head is off" : "This head is on",
      ),
      this.view.off.length
        ? element("button", { type: "button", click: () => this.actions.switchOff([]) }, "Switch all on")
        : element("span", { class: "hint" }, "Switch it off, and the sentence is translated without it."),
    );
    if (focused) this.switches.firstChild.focus();
  }

  #drawResult() {
    const { view, whole } = this;
    if (!view.off.length || !whole || whole.source.text !== view.source.text) {
      return fill(this.result, element("p", { class: "translation", dir: "auto" }, view.target.text));
    }
    const marked = (words) => words.flatMap(({ word, changed }) => [changed ? element("mark", {}, word) : word, " "]);
    const [before, after] = compared(whole.target.text, view.target.text);
    const same = view.target.text === whole.target.text;
    const count = view.off.length === 1 ? "one head" : `${view.off.length} heads`;
    return fill(
      this.result,
      element("p", { class: "before", dir: "auto" }, element("b", {}, "All heads on "), ...marked(before)),
      element("p", { class: "translation", dir: "auto" }, element("b", {}, `Without ${count} `), ...marked(after)),
      element("p", { class: "hint" }, same ? "Not a word changed: the other heads make up for it." : "Marked: the words that changed."),
    );
  }

  #lookAt(look, byKey) {
    this.look = look;
    this.matrix.mark(look);
    this.lines.mark(look);
    const said = this.#said(look);
    fill(this.readout, said || "Point at a cell or a token, or move through the table with the arrow keys.");
    fill(this.spoken, byKey ? said : "");
  }

  #said({ row, column }) {
    const { weights, rows, columns } = this.map;
    if (row >= 0 && column >= 0) {
      return `${USES[this.chosen.part].asks} ${quoted(rows[row])} looks at ${quoted(columns[column])}: ${percent(weights[row][column])}`;
    }
    if (row >= 0) return this.#sentence(row);
    if (column < 0) return "";
    const asking = weights.map((of, place) => [place, of[column]]);
    return `${quoted(columns[column])} is looked at by ${named(asking, rows)}`;
  }

  #sentence(row) {
    const { weights, rows, columns } = this.map;
    return `${USES[this.chosen.part].asks} ${quoted(rows[row])} looks at ${named([...weights[row].entries()], columns)}`;
  }
}

/** The largest of [place, weight] in words. */
function named(entries, pieces) {
  const most = entries.sort((one, other) => other[1] - one[1]).slice(0, MOST_NAMED);
  return most.filter(([, weight]) => weight >= 0.01).map(([place, weight]) => `${quoted(pieces[place])} ${percent(weight)}`).join(", ");
}

function quoted(piece) {
  return `\u201c${label(piece)}\u201d`;
}

/** What the labels of the tokens and of the small pictures mean. */
function marksNote() {
  return element(
    "p",
    { class: "hint" },
    "Small pictures are numbered layer.head. A word may be several pieces: a dot marks one that goes on within a word, \u2423 a space by itself, \u2039start\u203a and \u2039end\u203a the marks around a sentence.",
  );
}

function legend() {
  return element(
    "p",
    { class: "legend" },
    element("span", {}, "0"),
    element("span", { class: "weights", "aria-hidden": "true" }),
    element("span", {}, "100\u202f%"),
    element("span", { class: "hint" }, "of a token\u2019s attention"),
  );
}
