/* The pairs that the models find most unlikely, to leaf through and as a table. */

import { element, fill } from "./dom.js";
import { Leaves } from "./leaves.js";

/** Show the ranking, if there is one. */
export function showRanking(section, pairs) {
  if (!pairs.length) return;
  const both = pairs.some((pair) => pair.reverse !== null);
  const about = both
    ? "The score is the mean of the cross-entropies per token in both directions plus their difference; the higher, the worse."
    : "The score is the model's cross-entropy in nats per token; the higher, the worse.";
  const title = `The ${pairs.length} worst pairs by the model`;
  fill(section, element("h2", {}, title), element("p", { class: "hint" }, about), new Leaves(pairs, title, figures).element);
}

function figures(pair) {
  const parts = [`score ${format(pair.score)}`, `forward ${format(pair.forward)}`];
  if (pair.reverse !== null) parts.push(`reverse ${format(pair.reverse)}`);
  return element("div", {}, element("dt", {}, "score"), element("dd", {}, parts.join(", ")));
}

function format(value) {
  return typeof value === "number" && Number.isFinite(value) ? value.toFixed(2) : "not a number";
}
