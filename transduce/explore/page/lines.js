/* One head as two columns of tokens with lines between them: queries on the left, keys on the right. */

import { shape } from "./dom.js";

const FAINTEST = 0.08; // smallest weight with a line when all tokens are shown
const FAINTEST_OF_ONE = 0.01; // smallest weight with a line when one token is selected
const MARGIN = 8;

/** Coordinates of the tokens in a drawing of this width; the shorter column is spread over the height of the longer. */
export function linesLayout(map, width) {
  const count = Math.max(map.rows.length, map.columns.length);
  const pitch = Math.max(13, Math.min(24, 620 / count));
  const side = Math.min(150, width * 0.3);
  const height = count * pitch + 2 * MARGIN;
  const y = (position, length) => MARGIN + ((position + 0.5) * count * pitch) / length;
  return { width, height, pitch, size: Math.min(14, pitch * 0.82), from: side, to: width - side, y };
}

/** The lines to draw: of one query (row), of one key (column), or of all. */
export function connections(map, { row, column } = { row: -1, column: -1 }) {
  const one = row >= 0 || column >= 0;
  const found = [];
  map.weights.forEach((weights, from) => {
    if (row >= 0 && from !== row) return;
    weights.forEach((weight, to) => {
      if (row < 0 && column >= 0 && to !== column) return;
      if (weight >= (one ? FAINTEST_OF_ONE : FAINTEST)) found.push({ from, to, weight });
    });
  });
  return found;
}

/** The drawing on the page. `onlook(row, column)` is called with the token under the pointer; -1 means none. */
export class Lines {
  constructor(onlook) {
    this.onlook = onlook;
    this.all = shape("g", { class: "all" });
    this.one = shape("g", { class: "one" });
    this.tokens = shape("g");
    this.node = shape(
      "svg",
      { class: "lines", role: "img", pointerleave: () => onlook(-1, -1) },
      this.all,
      this.one,
      this.tokens,
    );
  }

  draw(map, width, name) {
    this.map = map;
    this.layout = linesLayout(map, width);
    this.node.setAttribute("viewBox", `0 0 ${width} ${this.layout.height}`);
    this.node.setAttribute("width", width);
    this.node.setAttribute("height", this.layout.height);
    this.node.setAttribute("aria-label", `${name}. The table has the same weights; read it with the arrow keys.`);
    this.all.replaceChildren(...this.#lines(connections(map)));
    this.left = map.rows.map((text, row) => this.#token(text, row, map.rows.length, "end", () => this.onlook(row, -1)));
    this.right = map.columns.map((text, column) =>
      this.#token(text, column, map.columns.length, "start", () => this.onlook(-1, column)),
    );
    this.tokens.replaceChildren(...this.left, ...this.right);
    this.mark({ row: -1, column: -1 });
  }

  mark(look) {
    const some = look.row >= 0 || look.column >= 0;
    const found = some ? connections(this.map, look) : [];
    this.node.classList.toggle("looking", some);
    this.one.replaceChildren(...this.#lines(found));
    this.left.forEach((token, row) =>
      token.classList.toggle(
        "lit",
        found.some(({ from }) => from === row),
      ),
    );
    this.right.forEach((token, column) =>
      token.classList.toggle(
        "lit",
        found.some(({ to }) => to === column),
      ),
    );
  }

  #lines(found) {
    const { from: x1, to: x2, y } = this.layout;
    const { rows, columns } = this.map;
    return found.map(({ from, to, weight }) =>
      shape("line", {
        x1,
        x2,
        y1: y(from, rows.length),
        y2: y(to, columns.length),
        "stroke-opacity": weight.toFixed(3),
        "stroke-width": (0.8 + 2.4 * weight).toFixed(2),
      }),
    );
  }

  #token(text, position, length, anchor, look) {
    const { from, to, y, size, pitch, width } = this.layout;
    const x = anchor === "end" ? from - 8 : to + 8;
    const box = {
      x: anchor === "end" ? 0 : to,
      y: y(position, length) - pitch / 2,
      width: anchor === "end" ? from : width - to,
      height: pitch,
    };
    return shape(
      "g",
      { class: "token", pointerenter: look, pointerdown: look },
      shape("rect", { ...box, fill: "transparent" }),
      shape(
        "text",
        { x, y: y(position, length), "text-anchor": anchor, "dominant-baseline": "central", "font-size": size },
        text,
      ),
    );
  }
}
