/* The statistics of a head, and a name for what it mostly does. */

import { element } from "./dom.js";
import { percent } from "./pieces.js";

const MOSTLY = 0.4; // of its attention
const MOSTLY_NEAR = 0.5; // likewise, of the places around one taken together
// Entropies, as shares of that of looking at all tokens alike.
const NEARLY_EVEN = 0.9;
const WIDE = 0.6;

const PLACES = {
  encoder: { previous: "the previous token", same: "the token itself", next: "the next token" },
  decoder: { previous: "the token before the last", same: "the token written last", next: "the next token" },
  cross: {
    previous: "the source token one place earlier",
    same: "the source token at the same place",
    next: "the source token one place later",
  },
};
const NEAR = {
  encoder: "the token itself and its neighbours",
  decoder: "the two tokens written last",
  cross: "the source tokens around the same place",
};
const MARKS = { encoder: "the end mark", decoder: "the start mark", cross: "the end mark" };

/** In a few words, what a head does in this sentence. */
export function describeHead(numbers, part, asked) {
  const shares = { ...PLACES[part], punctuation: "punctuation", marks: MARKS[part] };
  const [most] = Object.keys(shares).sort((one, other) => numbers[other] - numbers[one]);
  if (numbers[most] >= MOSTLY) return `mostly at ${shares[most]}`;
  const widest = Math.log2(Math.max(2, asked));
  if (numbers.entropy >= NEARLY_EVEN * widest) return "everywhere alike";
  if (numbers.previous + numbers.same + numbers.next >= MOSTLY_NEAR) return `mostly at ${NEAR[part]}`;
  if (numbers.entropy >= WIDE * widest) return "at many tokens, some more than others";
  return "at a few tokens, by what they are";
}

/** The numbers as a list of labelled bars. */
export function statisticsList(numbers, part, asked) {
  const widest = Math.log2(Math.max(2, asked));
  const places = PLACES[part];
  const rows = [
    [
      "Spread",
      `${numbers.entropy.toFixed(2)} bits`,
      numbers.entropy / widest,
      `entropy: as if among ${(2 ** numbers.entropy).toFixed(1)} tokens`,
    ],
    [
      "Distance",
      `${numbers.distance.toFixed(1)} tokens`,
      numbers.distance / Math.max(1, asked),
      "how far away it looks, on average",
    ],
    [capital(places.previous), percent(numbers.previous), numbers.previous],
    [
      capital(places.same),
      percent(numbers.same),
      numbers.same,
      part === "cross" ? "its fifth token while the fifth is written" : null,
    ],
    part === "decoder" ? null : [capital(places.next), percent(numbers.next), numbers.next],
    ["Punctuation", percent(numbers.punctuation), numbers.punctuation],
    [capital(MARKS[part]), percent(numbers.marks), numbers.marks, "where heads rest that find nothing to do"],
  ];
  return element("dl", { class: "statistics" }, ...rows.filter(Boolean).map(statisticsRow));
}

function statisticsRow([name, value, share, note]) {
  const bar = element("span", { class: "bar", "aria-hidden": "true" });
  bar.style.setProperty("--share", Math.min(1, share));
  return element(
    "div",
    {},
    element("dt", {}, name, note ? element("small", {}, ` ${note}`) : null),
    element("dd", {}, bar, value),
  );
}

function capital(text) {
  return text[0].toUpperCase() + text.slice(1);
}
