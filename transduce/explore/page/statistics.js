/* The statistics of a head, and a short description of what it attends to. */

import { element } from "./dom.js";
import { percent } from "./pieces.js";

const MOSTLY = 0.4; // share of the attention
const MOSTLY_NEAR = 0.5; // share of the attention to the same position and its neighbours together
// Entropies relative to that of even attention to all tokens.
const NEARLY_EVEN = 0.9;
const WIDE = 0.6;

const NEIGHBOURS = {
  encoder: { previous: "the previous token", same: "the token itself", next: "the next token" },
  decoder: { previous: "the second-to-last token", same: "the last generated token", next: "the next token" },
  cross: {
    previous: "the source token one position earlier",
    same: "the source token at the same position",
    next: "the source token one position later",
  },
};
const NEAR = {
  encoder: "the token itself and its neighbours",
  decoder: "the last two generated tokens",
  cross: "the source tokens around the same position",
};
const MARKS = { encoder: "the end token", decoder: "the start token", cross: "the end token" };

/** What a head attends to in this sentence, to follow the verb "attends"; `keys` is the number of keys. */
export function describeHead(numbers, part, keys) {
  const shares = { ...NEIGHBOURS[part], punctuation: "punctuation", marks: MARKS[part] };
  const [most] = Object.keys(shares).sort((one, other) => numbers[other] - numbers[one]);
  if (numbers[most] >= MOSTLY) return `mostly to ${shares[most]}`;
  const widest = Math.log2(Math.max(2, keys));
  if (numbers.entropy >= NEARLY_EVEN * widest) return "almost evenly to all tokens";
  if (numbers.previous + numbers.same + numbers.next >= MOSTLY_NEAR) return `mostly to ${NEAR[part]}`;
  if (numbers.entropy >= WIDE * widest) return "to many tokens, but not evenly";
  return "to a few tokens, chosen by content rather than position";
}

/** The numbers as a list of labelled bars. */
export function statisticsList(numbers, part, keys) {
  const widest = Math.log2(Math.max(2, keys));
  const neighbours = NEIGHBOURS[part];
  const rows = [
    [
      "Entropy",
      `${numbers.entropy.toFixed(2)} bits`,
      numbers.entropy / widest,
      `like even attention to ${(2 ** numbers.entropy).toFixed(1)} tokens`,
    ],
    [
      "Distance",
      `${numbers.distance.toFixed(1)} tokens`,
      numbers.distance / Math.max(1, keys),
      "average distance from query to key",
    ],
    [capital(neighbours.previous), percent(numbers.previous), numbers.previous],
    [
      capital(neighbours.same),
      percent(numbers.same),
      numbers.same,
      part === "cross" ? "such as the fifth for the fifth target token" : null,
    ],
    part === "decoder" ? null : [capital(neighbours.next), percent(numbers.next), numbers.next],
    ["Punctuation", percent(numbers.punctuation), numbers.punctuation],
    [capital(MARKS[part]), percent(numbers.marks), numbers.marks, "often used by heads that find nothing relevant"],
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
