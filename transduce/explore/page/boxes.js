/* Draws the search tree: a box for each token, and a line from the token before it. */

import { shape } from "./dom.js";
import { percent } from "./pieces.js";

const LONGEST = 10; // characters in a box
export const OUTCOMES = {
  kept: "kept",
  ended: "finished translation",
  dropped: "dropped",
  abandoned: "kept, but dropped later",
};

/** The SVG of a tree with the layout of `branches`. */
export function drawBranches(tree) {
  const children = tree.nodes.filter(({ parent }) => tree.byId.has(parent));
  return shape(
    "svg",
    { width: tree.width, height: tree.height, viewBox: `0 0 ${tree.width} ${tree.height}`, "aria-hidden": "true" },
    ...children.map((node) => edge(tree.byId.get(node.parent), node, tree)),
    ...tree.nodes.map((node) => box(node, tree)),
  );
}

function edge(from, to, { column, row }) {
  const [x1, y1, x2, y2] = [from.x + column - 22, from.y + row / 2 - 4, to.x, to.y + row / 2 - 4];
  const middle = (x1 + x2) / 2;
  return shape("path", {
    class: `edge ${to.outcome}${to.wins ? " wins" : ""}`,
    d: `M${x1} ${y1} C${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`,
  });
}

function box(node, { column, row }) {
  const probability = node.step < 0 ? 1 : Math.exp(node.log_probability);
  return shape(
    "g",
    { class: `node ${node.outcome}${node.wins ? " wins" : ""}`, transform: `translate(${node.x} ${node.y})` },
    shape("rect", { width: column - 22, height: row - 8, rx: 5 }),
    shape("text", { x: 8, y: (row - 8) / 2, "dominant-baseline": "central" }, shortened(node.name)),
    shape("rect", { class: "probability", x: 0, y: row - 10.5, width: (column - 22) * probability, height: 2.5 }),
    shape("title", {}, node.step < 0 ? "start" : `${node.name}: ${percent(probability)}, ${OUTCOMES[node.outcome]}`),
  );
}

function shortened(name) {
  return name.length > LONGEST ? `${name.slice(0, LONGEST - 1)}\u2026` : name;
}
