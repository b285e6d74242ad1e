/* One head as a table on a canvas: a row per query, a column per key. Pointer and arrow keys select cells. */

import { weightShade } from "./colours.js";
import { element } from "./dom.js";
import { raster, sharp } from "./raster.js";

const SMALLEST_CELL = 7;
const LARGEST_CELL = 30;
const LONGEST_LABEL = 118;
const FONT = "system-ui, sans-serif";
const GAP = 6;

/** The layout of a table within the available width. */
export function matrixLayout(context, map, available) {
  const measure = (texts, size) => {
    context.font = `${size}px ${FONT}`;
    return Math.min(LONGEST_LABEL, Math.max(...texts.map((text) => context.measureText(text).width)));
  };
  const left = measure(map.rows, 13) + GAP;
  const fitting = (available - left - 2) / map.columns.length;
  const cell = Math.max(SMALLEST_CELL, Math.min(LARGEST_CELL, fitting));
  const size = Math.min(13, Math.max(SMALLEST_CELL, cell * 0.92));
  const top = measure(map.columns, size) + GAP;
  return {
    left,
    top,
    cell,
    size,
    width: left + cell * map.columns.length + 2,
    height: top + cell * map.rows.length + 2,
  };
}

export function drawMatrix(context, map, layout, colours) {
  const { left, top, cell } = layout;
  const picture = raster(map.weights, colours.weights, weightShade);
  context.imageSmoothingEnabled = false;
  context.drawImage(picture, left, top, cell * map.columns.length, cell * map.rows.length);
  context.strokeStyle = colours.line;
  context.strokeRect(left, top, cell * map.columns.length, cell * map.rows.length);
  context.fillStyle = colours.ink;
  context.font = `${layout.size}px ${FONT}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  map.rows.forEach((text, row) => context.fillText(text, left - GAP, top + (row + 0.5) * cell, left - GAP));
  map.columns.forEach((text, column) => drawUpright(context, text, left + (column + 0.5) * cell, top - GAP));
}

function drawUpright(context, text, x, y) {
  context.save();
  context.translate(x, y);
  context.rotate(-Math.PI / 2);
  context.textAlign = "left";
  context.fillText(text, 0, 0, LONGEST_LABEL);
  context.restore();
}

/** The table on the page. `onlook(row, column, byKey)` is called with the selected cell; -1, -1 means none. */
export class Matrix {
  constructor(onlook) {
    this.onlook = onlook;
    this.look = { row: -1, column: -1 };
    this.base = element("canvas", { "aria-hidden": "true" });
    this.marks = element("canvas", {
      class: "marks",
      tabindex: "0",
      role: "img",
      pointermove: (event) => this.#point(event),
      pointerdown: (event) => this.#point(event),
      pointerleave: () => this.#go(-1, -1, false),
      keydown: (event) => this.#press(event),
    });
    this.node = element("div", { class: "matrix" }, this.base, this.marks);
  }

  draw(map, available, colours, name) {
    this.map = map;
    this.colours = colours;
    this.layout = matrixLayout(this.base.getContext("2d"), map, available);
    drawMatrix(sharp(this.base, this.layout.width, this.layout.height), map, this.layout, colours);
    this.context = sharp(this.marks, this.layout.width, this.layout.height);
    this.marks.setAttribute("aria-label", `${name}. Use the arrow keys to move between cells.`);
    this.mark(this.look);
  }

  /** Mark the selected cell, which may have been selected in another drawing of the same head. */
  mark({ row, column }) {
    this.look = { row, column };
    const { context, layout, map } = this;
    const { left, top, cell } = layout;
    context.clearRect(0, 0, layout.width, layout.height);
    context.strokeStyle = this.colours.strong;
    context.lineWidth = 1.5;
    if (row >= 0 && row < map.rows.length) context.strokeRect(1, top + row * cell, layout.width - 2, cell);
    if (column >= 0 && column < map.columns.length)
      context.strokeRect(left + column * cell, 1, cell, layout.height - 2);
  }

  #point(event) {
    const box = this.marks.getBoundingClientRect();
    const inside = (value, count) => (value >= 0 && value < count ? Math.floor(value) : -1);
    const column = inside((event.clientX - box.left - this.layout.left) / this.layout.cell, this.map.columns.length);
    const row = inside((event.clientY - box.top - this.layout.top) / this.layout.cell, this.map.rows.length);
    this.#go(row, column, false);
  }

  #press(event) {
    const moves = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    if (event.key === "Escape") return this.#go(-1, -1, true);
    if (!(event.key in moves)) return undefined;
    event.preventDefault();
    const [down, right] = moves[event.key];
    const within = (value, count) => Math.min(count - 1, Math.max(0, value));
    const row = within(this.look.row + down, this.map.rows.length);
    return this.#go(row, within(this.look.column + right, this.map.columns.length), true);
  }

  #go(row, column, byKey) {
    if (row === this.look.row && column === this.look.column) return;
    this.mark({ row, column });
    this.onlook(row, column, byKey);
  }
}
