/* Curves over the steps of a run: one chart with axes, direct labels and a readout under the pointer. */

import { element, shape } from "./dom.js";

const [WIDTH, HEIGHT] = [460, 220];
const LINES = 5; // approximate number of grid lines
const FRAME = { left: 58, right: 12, top: 10, bottom: 26 };

/** `series`: [{name, points: [[step, value]], dots}], drawn in the colours one, two, three of the style sheet. */
export function chart(title, series, format) {
  const drawn = series
    .map((one) => ({ ...one, points: one.points.filter(([, value]) => value !== null) }))
    .filter(({ points }) => points.length);
  if (!drawn.length) return null;
  const scale = makeScale(drawn.flatMap(({ points }) => points));
  const cursor = shape("line", { class: "cursor", y1: FRAME.top, y2: HEIGHT - FRAME.bottom, visibility: "hidden" });
  const readout = element("figcaption", {}, summary(drawn, format));
  const drawing = shape(
    "svg",
    { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${summary(drawn, format)}` },
    ...axes(scale, format),
    ...drawn.flatMap((one, number) => curve(one, number, scale)),
    cursor,
  );
  drawing.addEventListener("pointermove", (event) => follow(event, drawing, cursor, readout, drawn, scale, format));
  drawing.addEventListener("pointerleave", () => {
    cursor.setAttribute("visibility", "hidden");
    readout.textContent = summary(drawn, format);
  });
  return element("figure", { class: "chart" }, element("h2", {}, title), keys(drawn), drawing, readout);
}

function makeScale(points) {
  const steps = points.map(([step]) => step);
  const values = points.map(([, value]) => value);
  const [first, last] = [Math.min(...steps), Math.max(...steps)];
  const [low, high] = [Math.min(0, ...values), Math.max(...values)];
  const x = (step) => FRAME.left + ((step - first) / (last - first || 1)) * (WIDTH - FRAME.left - FRAME.right);
  const y = (value) =>
    HEIGHT - FRAME.bottom - ((value - low) / (high - low || 1)) * (HEIGHT - FRAME.top - FRAME.bottom);
  return { x, y, first, last, low, high };
}

/** Round numbers between two values, for the grid. */
function roundLevels(low, high) {
  const rough = (high - low || 1) / LINES;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => power * factor >= rough);
  const first = Math.ceil(low / step);
  return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, number) => (first + number) * step);
}

function axes({ x, y, first, last, low, high }, format) {
  const levels = roundLevels(low, high);
  const text = (attributes, value) => shape("text", { class: "axis", ...attributes }, value);
  return [
    ...levels.map((value) =>
      shape("line", { class: "grid", x1: FRAME.left, x2: WIDTH - FRAME.right, y1: y(value), y2: y(value) }),
    ),
    ...levels.map((value) =>
      text({ x: FRAME.left - 6, y: y(value), "text-anchor": "end", "dominant-baseline": "central" }, format(value)),
    ),
    text({ x: x(first), y: HEIGHT - 8 }, `step ${first.toLocaleString()}`),
    text({ x: x(last), y: HEIGHT - 8, "text-anchor": "end" }, last.toLocaleString()),
  ];
}

function curve({ points, dots }, number, { x, y }) {
  const path = points
    .map(([step, value], index) => `${index ? "L" : "M"}${x(step).toFixed(1)} ${y(value).toFixed(1)}`)
    .join("");
  const marks = dots
    ? points.map(([step, value]) => shape("circle", { class: `dot series-${number}`, cx: x(step), cy: y(value), r: 3 }))
    : [];
  return [shape("path", { class: `curve series-${number}`, d: path }), ...marks];
}

function keys(drawn) {
  const key = ({ name, dots }, number) =>
    element("span", { class: `key series-${number}` }, dots ? "\u25cf " : "\u2014 ", name);
  return element("p", { class: "keys" }, ...drawn.map(key));
}

function summary(drawn, format) {
  return drawn
    .map(({ name, points }) => `${name} ${format(points.at(-1)[1])} at step ${points.at(-1)[0].toLocaleString()}`)
    .join("; ");
}

function follow(event, drawing, cursor, readout, drawn, { x, first, last }, format) {
  const box = drawing.getBoundingClientRect();
  const share = (((event.clientX - box.left) / box.width) * WIDTH - FRAME.left) / (WIDTH - FRAME.left - FRAME.right);
  const step = first + Math.min(1, Math.max(0, share)) * (last - first);
  const near = drawn.map(({ name, points }) => [name, nearest(points, step)]);
  cursor.setAttribute("visibility", "visible");
  cursor.setAttribute("x1", x(step));
  cursor.setAttribute("x2", x(step));
  readout.textContent = near
    .map(([name, [at, value]]) => `${name} ${format(value)} at step ${at.toLocaleString()}`)
    .join("; ");
}

function nearest(points, step) {
  return points.reduce((best, point) => (Math.abs(point[0] - step) < Math.abs(best[0] - step) ? point : best));
}
