/* Describes in words what a head attends to. */

import { percent } from "./pieces.js";
import { USES } from "./uses.js";

const MOST_NAMED = 4; // tokens in one description
const LEAST_NAMED = 0.01; // smallest weight that is mentioned

/** Describes a cell; a whole row or column if the other index is -1; empty if both are -1. */
export function describeCell(map, part, { row, column }) {
  if (row >= 0 && column >= 0) {
    return `${querying(map, part, row)} ${quoted(map.columns[column])}: ${percent(map.weights[row][column])}`;
  }
  if (row >= 0) return describeRow(map, part, row);
  if (column < 0) return "";
  const weights = map.weights.map((of) => of[column]);
  return `${quoted(map.columns[column])} receives attention from ${largest(weights, map.rows)}`;
}

export function describeRow(map, part, row) {
  return `${querying(map, part, row)} ${largest(map.weights[row], map.columns)}`;
}

function querying(map, part, row) {
  return `${USES[part].query(quoted(map.rows[row]))} attends to`;
}

function largest(weights, tokens) {
  return [...weights.entries()]
    .sort((one, other) => other[1] - one[1])
    .slice(0, MOST_NAMED)
    .filter(([, weight]) => weight >= LEAST_NAMED)
    .map(([position, weight]) => `${quoted(tokens[position])} ${percent(weight)}`)
    .join(", ");
}

function quoted(token) {
  return `\u201c${token}\u201d`;
}
