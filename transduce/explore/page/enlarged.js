/* One head enlarged: its table and its lines, and a description of the selected position in words. */

import { element, fill } from "./dom.js";
import { Lines } from "./lines.js";
import { Matrix } from "./matrix.js";
import { headName } from "./uses.js";
import { describeCell } from "./words.js";

const WIDE_ENOUGH = 720; // for the table and the lines side by side
const NARROWEST_LINES = 280;
const WIDEST_LINES = 560;
const NOWHERE = { row: -1, column: -1 };
const INVITATION = "Point at a cell or a token, or select the table and use the arrow keys.";

export class Enlarged {
  constructor() {
    this.matrix = new Matrix((row, column, byKey) => this.#lookAt({ row, column }, byKey));
    this.lines = new Lines((row, column) => this.#lookAt({ row, column }, false));
    this.readout = element("p", { class: "readout" });
    this.spoken = element("p", { class: "unseen", role: "status" });
    const table = element("div", { class: "scrolling" }, this.matrix.node);
    this.large = element("div", { class: "large" }, table, this.lines.node);
    this.node = element("div", {}, this.readout, this.spoken, this.large);
    new ResizeObserver(() => this.#draw()).observe(this.large);
  }

  show(map, chosen, colours) {
    [this.map, this.chosen, this.colours] = [map, chosen, colours];
    this.look = NOWHERE;
    this.#draw();
  }

  /** A hidden panel has no width; it is drawn once it is visible. */
  #draw() {
    const room = this.large.clientWidth;
    if (!this.map || !room) return;
    const name = headName(this.chosen);
    this.matrix.draw(this.map, room >= WIDE_ENOUGH ? room * 0.58 : room, this.colours, name);
    const rest = room - this.matrix.layout.width - 24;
    const beside = room >= WIDE_ENOUGH && rest >= NARROWEST_LINES;
    this.lines.draw(this.map, beside ? rest : Math.min(room, WIDEST_LINES), name);
    this.large.classList.toggle("beside", beside);
    this.#lookAt(this.look, false);
  }

  #lookAt(look, byKey) {
    this.look = look;
    this.matrix.mark(look);
    this.lines.mark(look);
    const said = describeCell(this.map, this.chosen.part, look);
    fill(this.readout, said || INVITATION);
    fill(this.spoken, byKey ? said : "");
  }
}
