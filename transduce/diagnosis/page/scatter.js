/* The lengths of a sample of pairs as points, source to the right and target upwards, both on logarithmic scales. */

import { element, shape } from "./dom.js";

const SIZE = 420;
const LEFT = 44;
const BOTTOM = 36;
const MOST = 4000;

/** The chart, or nothing if there are no points. */
export function scatter(title, points) {
  if (!points.length) return null;
  const shown = points.slice(0, MOST);
  const longest = Math.max(10, ...shown.map(([source, target]) => Math.max(source, target)));
  const shortest = Math.min(...shown.map(([source, target]) => Math.min(source, target)), longest - 1);
  const scale = (length) => (Math.log1p(length) - Math.log1p(shortest)) / (Math.log1p(longest) - Math.log1p(shortest));
  const x = (length) => LEFT + scale(length) * (SIZE - LEFT - 8);
  const y = (length) => SIZE - BOTTOM - scale(length) * (SIZE - BOTTOM - 8);
  const dots = shown.map(([source, target]) => shape("circle", { class: "point", cx: x(source).toFixed(1), cy: y(target).toFixed(1), r: 2 }));
  const diagonal = shape("line", { class: "grid", x1: x(shortest), y1: y(shortest), x2: x(longest), y2: y(longest) });
  const label = `${title}: ${shown.length.toLocaleString("en")} points; pairs far from the diagonal have very different lengths`;
  const picture = shape("svg", { viewBox: `0 0 ${SIZE} ${SIZE}`, role: "img", "aria-label": label }, diagonal, ...ticks(shortest, longest, x, y), ...dots, ...names());
  const caption = element("figcaption", {}, `${shown.length.toLocaleString("en")} pairs. Those far from the diagonal have very different lengths.`);
  return element("figure", { class: "chart" }, element("h2", {}, title), picture, caption);
}

function ticks(shortest, longest, x, y) {
  const values = [1, 3, 10, 30, 100, 300, 1000, 3000, 10000, 100000].filter((value) => value >= shortest && value <= longest);
  return values.flatMap((value) => [
    shape("text", { class: "axis", x: x(value), y: SIZE - BOTTOM + 14, "text-anchor": "middle" }, value.toLocaleString("en")),
    shape("text", { class: "axis", x: LEFT - 6, y: y(value) + 4, "text-anchor": "end" }, value.toLocaleString("en")),
  ]);
}

function names() {
  return [
    shape("text", { class: "axis", x: SIZE - 8, y: SIZE - 6, "text-anchor": "end" }, "source, characters"),
    shape("text", { class: "axis", x: 2, y: 12 }, "target, characters"),
  ];
}
