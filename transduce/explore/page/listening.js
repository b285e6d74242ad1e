/* The attention of a speech model's decoder to a recording, and when CTC emits each token; time runs from left to right. */

import { onSchemeChange, palette, weightShade } from "./colours.js";
import { element } from "./dom.js";
import { raster, sharp } from "./raster.js";

const ROW = 16;
const GAP = 6;
const LABELS = 64;
const SECOND = 100; // pixels, if there is room
const LEAST_ROOM = 0.6; // of the width of labels, which are squeezed to it
const FONT = "12px system-ui, sans-serif";

/** A picture of the attention of a segment and of its CTC alignment; `available` is its width. */
export function listening({ attention }, available) {
  const canvas = element("canvas", { role: "img", "aria-label": described(attention) });
  const draw = () => drawListening(canvas, attention, available);
  draw();
  onSchemeChange(draw);
  return canvas;
}

function described({ ctc }) {
  return ctc ? "Attention over time, and below it the tokens that CTC emits" : "Attention over time";
}

function drawListening(canvas, attention, available) {
  const { begin, end, tokens, weights, ctc } = attention;
  const width = Math.max(200, Math.min(available - LABELS - 12, SECOND * (end - begin)));
  const height = ROW * tokens.length;
  const bottom = height + (ctc ? GAP + 2 * ROW : 0);
  const colours = palette();
  const context = sharp(canvas, LABELS + width + 8, bottom + ROW + 4);
  context.imageSmoothingEnabled = false;
  context.font = FONT;
  context.textBaseline = "middle";
  frame(context, scaled(weights), colours, 0, width, height);
  context.fillStyle = colours.ink;
  context.textAlign = "right";
  tokens.forEach((token, row) => context.fillText(token, LABELS - 6, (row + 0.5) * ROW, LABELS - 6));
  if (ctc) drawEmissions(context, attention, colours, height + GAP, width);
  context.textAlign = "right";
  context.fillText(`${end.toFixed(1)} s`, LABELS + width, bottom + ROW / 2 + 2);
  context.textAlign = "left";
  context.fillText(`${begin.toFixed(1)} s`, LABELS, bottom + ROW / 2 + 2);
}

/** Values from 0 to 1 as shades in a frame. */
function frame(context, values, colours, top, width, height) {
  context.drawImage(raster(values, colours.weights, weightShade), LABELS, top, width, height);
  context.strokeStyle = colours.line;
  context.strokeRect(LABELS, top, width, height);
}

/** A row of the frames in which CTC emits a token, and under it the tokens. */
function drawEmissions(context, { tokens, ctc }, colours, top, width) {
  const { emitted, probabilities } = ctc;
  const column = width / emitted.length;
  frame(context, [emitted.map((token, at) => (token === null ? 0 : probabilities[at]))], colours, top, width, ROW);
  const firsts = emitted.flatMap((token, at) => (token === null || token === emitted[at - 1] ? [] : [{ token, at }]));
  context.fillStyle = colours.paper;
  for (const { at } of firsts) context.fillRect(LABELS + at * column, top, 1, ROW);
  context.fillStyle = colours.ink;
  context.textAlign = "right";
  context.fillText("CTC", LABELS - 6, top + ROW / 2);
  const labels = firsts.map(({ token, at }) => ({
    text: tokens[token],
    centre: (at + emitted.lastIndexOf(token) + 1) * 0.5 * column,
    width: context.measureText(tokens[token]).width + 2,
  }));
  context.textAlign = "center";
  for (const label of spread(labels, width))
    context.fillText(label.text, LABELS + label.centre, top + 1.5 * ROW, label.width);
}

/** Labels moved as little as needed so that they do not overlap: squeezed if there is little room, none if there is far too little. */
function spread(labels, width) {
  const room = width / labels.reduce((sum, label) => sum + label.width, 0);
  if (room < LEAST_ROOM) return [];
  const moved = labels.map((label) => ({ ...label, width: label.width * Math.min(1, room) }));
  let free = 0;
  for (const label of moved) {
    label.centre = Math.max(label.centre, free + label.width / 2);
    free = label.centre + label.width / 2;
  }
  free = width;
  for (const label of moved.reverse()) {
    label.centre = Math.min(label.centre, free - label.width / 2);
    free = label.centre - label.width / 2;
  }
  return moved;
}

/** Weights relative to the largest of all: spread over seconds, each is small. */
function scaled(weights) {
  const most = Math.max(...weights.flat());
  return weights.map((row) => row.map((weight) => weight / most));
}
