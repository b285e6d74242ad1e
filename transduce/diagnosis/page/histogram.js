/* A histogram as bars; the bar under the pointer is described below it, and a table holds all figures. */

import { element, shape } from "./dom.js";

const WIDTH = 420;
const HEIGHT = 180;
const LEFT = 8;
const BOTTOM = 22;

/** The chart of a distribution, or nothing if there is none. */
export function histogram(title, unit, distribution) {
  const { edges, counts } = withoutEmptyEnds(distribution);
  const most = Math.max(0, ...counts);
  if (!most) return null;
  const readout = element("p", { class: "readout", "aria-hidden": "true" });
  const total = counts.reduce((sum, count) => sum + count, 0);
  const bars = counts.map((count, n) => bar(edges, counts, n, most, () => describe(readout, edges, n, count, total, unit)));
  const picture = shape("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": `${title}: ${summary(edges, counts, total, unit)}` }, ...axis(edges), ...bars);
  const caption = element("figcaption", {}, summary(edges, counts, total, unit));
  return element("figure", { class: "chart" }, element("h2", {}, title), picture, caption, readout);
}

function withoutEmptyEnds({ edges, counts }) {
  const first = Math.max(0, counts.findIndex((count) => count > 0));
  const last = counts.findLastIndex((count) => count > 0) + 1;
  return { edges: edges.slice(first, last + 1), counts: counts.slice(first, last) };
}

function bar(edges, counts, n, most, look) {
  const step = (WIDTH - 2 * LEFT) / counts.length;
  const tall = (HEIGHT - BOTTOM - 6) * (counts[n] / most);
  const height = counts[n] ? Math.max(1.5, tall) : 0;
  const x = LEFT + n * step;
  const drawn = shape("rect", { class: "bar-of-chart", x, y: HEIGHT - BOTTOM - height, width: Math.max(1, step - 1), height });
  const around = shape("rect", { x, y: 0, width: step, height: HEIGHT - BOTTOM, fill: "transparent", pointerenter: look, click: look });
  return shape("g", {}, drawn, around);
}

function axis(edges) {
  const count = edges.length - 1;
  const labels = [0, Math.floor(count / 4), Math.floor(count / 2), Math.floor((3 * count) / 4), count];
  const place = (n) => LEFT + ((WIDTH - 2 * LEFT) * n) / count;
  const anchor = (n) => (n === 0 ? "start" : n === count ? "end" : "middle");
  return [...new Set(labels)].map((n) => shape("text", { class: "axis", x: place(n), y: HEIGHT - 6, "text-anchor": anchor(n) }, short(edges[n])));
}

function describe(readout, edges, n, count, total, unit) {
  const range = `${short(edges[n])} to ${short(edges[n + 1])}${unit && ` ${unit}`}`;
  readout.replaceChildren(`${range}: ${count.toLocaleString("en")} pairs (${((100 * count) / total).toFixed(1)} %)`);
}

function summary(edges, counts, total, unit) {
  const at = (share) => short(edges[quantile(counts, total, share)]);
  return `half of the pairs are below about ${at(0.5)}${unit && ` ${unit}`}, 99 % below about ${at(0.99)}`;
}

/** The number of the edge below which at least this share lies. */
function quantile(counts, total, share) {
  let sum = 0;
  for (let n = 0; n < counts.length; n += 1) {
    sum += counts[n];
    if (sum >= share * total) return n + 1;
  }
  return counts.length;
}

function short(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "more";
  return value.toLocaleString("en", { maximumFractionDigits: value < 10 ? 2 : 0 });
}
