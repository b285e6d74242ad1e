/* Draws an interval as a line with a dot, beside a line at zero. */

import { shape } from "./dom.js";

const [WIDTH, HEIGHT, EDGE] = [180, 16, 6];

/** `reach` is the largest absolute value of all intervals that are drawn below each other. */
export function whisker(value, interval, reach) {
  const at = (number) => EDGE + ((number / (reach || 1) + 1) / 2) * (WIDTH - 2 * EDGE);
  const middle = HEIGHT / 2;
  const certain = interval && (interval.low > 0 || interval.high < 0);
  return shape(
    "svg",
    { class: "whisker", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, "aria-hidden": "true", preserveAspectRatio: "none" },
    shape("line", { class: "zero", x1: at(0), x2: at(0), y1: 0, y2: HEIGHT }),
    interval &&
      shape("line", {
        class: certain ? "range certain" : "range",
        x1: at(interval.low),
        x2: at(interval.high),
        y1: middle,
        y2: middle,
      }),
    shape("circle", { cx: at(value), cy: middle, r: 3.5 }),
  );
}

/** The largest absolute value among differences and their intervals. */
export function reachOf(items) {
  const ends = items.flatMap(({ difference, interval }) => [difference, interval?.low ?? 0, interval?.high ?? 0]);
  return Math.max(...ends.map(Math.abs), 0);
}

export function signed(number) {
  return `${number < 0 ? "\u2212" : "+"}${Math.abs(number).toFixed(2)}`;
}

export function range(interval, format = signed) {
  return interval ? `${format(interval.low)} to ${format(interval.high)}` : "";
}
