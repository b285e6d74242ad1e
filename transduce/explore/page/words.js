/* Describes in words what a head attends to. */

import { percent } from "./pieces.js";
import { USES } from "./uses.js";

const MOST_NAMED = 4; // tokens that one sentence names
const LEAST_NAMED = 0.01; // of the attention

/** What can be said of a place of the table; of a whole row or column where the other is -1, and nothing of nowhere. */
export function saidOf(map, part, { row, column }) {
  if (row >= 0 && column >= 0) {
    return `${asking(map, part, row)} ${quoted(map.columns[column])}: ${percent(map.weights[row][column])}`;
  }
  if (row >= 0) return saidOfRow(map, part, row);
  if (column < 0) return "";
  const weights = map.weights.map((of) => of[column]);
  return `${quoted(map.columns[column])} is looked at by ${largest(weights, map.rows)}`;
}

export function saidOfRow(map, part, row) {
  return `${asking(map, part, row)} ${largest(map.weights[row], map.columns)}`;
}

function asking(map, part, row) {
  return `${USES[part].asks} ${quoted(map.rows[row])} looks at`;
}

function largest(weights, tokens) {
  return [...weights.entries()]
    .sort((one, other) => other[1] - one[1])
    .slice(0, MOST_NAMED)
    .filter(([, weight]) => weight >= LEAST_NAMED)
    .map(([place, weight]) => `${quoted(tokens[place])} ${percent(weight)}`)
    .join(", ");
}

function quoted(token) {
  return `\u201c${token}\u201d`;
}
