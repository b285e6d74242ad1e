/* Draws a word alignment: the source above, the output below, and a line for each pair of words. */

import { element, shape } from "./dom.js";

const [CHARACTER, GAP, TOP, BOTTOM, HEIGHT] = [7.6, 14, 16, 84, 92];

export function alignment(name, source, output, pairs) {
  const [above, below] = [placed(source), placed(output)];
  const drawn = pairs.filter(([from, to]) => above.words[from] && below.words[to]);
  const width = Math.max(above.width, below.width);
  const picture = shape(
    "svg",
    { width, height: HEIGHT, role: "img", "aria-label": spoken(above, below, drawn) },
    ...drawn.map(([from, to]) => line(above.words[from].middle, below.words[to].middle)),
    ...above.words.map((word) => text(word, TOP)),
    ...below.words.map((word) => text(word, BOTTOM)),
  );
  const scrolling = element("div", { class: "scrolling" }, picture);
  return element("figure", { class: "alignment" }, element("figcaption", {}, name), scrolling);
}

function line(from, to) {
  return shape("line", { x1: from, y1: TOP + 6, x2: to, y2: BOTTOM - 14 });
}

function text({ word, middle }, y) {
  return shape("text", { x: middle, y, "text-anchor": "middle" }, word);
}

function placed(sentence) {
  let width = 0;
  const words = sentence
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => {
      const size = [...word].length * CHARACTER;
      width += size + GAP;
      return { word, middle: width - GAP - size / 2 };
    });
  return { words, width };
}

function spoken(above, below, pairs) {
  return pairs.map(([from, to]) => `${above.words[from].word} to ${below.words[to].word}`).join(", ");
}
