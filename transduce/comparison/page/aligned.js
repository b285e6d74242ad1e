/* Draws a word alignment: the source above, the output below, and a line for each pair of words. */

import { element, shape } from "./dom.js";

const [CHARACTER, GAP, TOP, BOTTOM, HEIGHT] = [7.6, 14, 16, 84, 92];

export function alignment(name, source, output, pairs) {
  const [above, below] = [placed(source), placed(output)];
  const width = Math.max(above.width, below.width);
  const lines = pairs
    .filter(([from, to]) => above.words[from] && below.words[to])
    .map(([from, to]) => shape("line", { x1: above.words[from].middle, y1: TOP + 6, x2: below.words[to].middle, y2: BOTTOM - 14 }));
  const text = (y) => ({ word, middle }) => shape("text", { x: middle, y, "text-anchor": "middle" }, word);
  const drawn = shape(
    "svg",
    { width, height: HEIGHT, viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": spoken(above, below, pairs) },
    ...lines,
    ...above.words.map(text(TOP)),
    ...below.words.map(text(BOTTOM)),
  );
  return element("figure", { class: "alignment" }, element("figcaption", {}, name), element("div", { class: "scrolling" }, drawn));
}

function placed(text) {
  let at = 0;
  const words = text
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => {
      const size = Math.max([...word].length, 1) * CHARACTER;
      at += size + GAP;
      return { word, middle: at - GAP - size / 2 };
    });
  return { words, width: at };
}

function spoken(above, below, pairs) {
  return pairs.map(([from, to]) => `${above.words[from]?.word ?? ""} to ${below.words[to]?.word ?? ""}`).join(", ");
}
