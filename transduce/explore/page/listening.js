/* Where the decoder of a speech model listens: a row for each token, from left to right the time of the recording. */

import { onSchemeChange, palette, weightShade } from "./colours.js";
import { element } from "./dom.js";
import { raster, sharp } from "./raster.js";

const ROW = 16;
const LABELS = 64;
const SECOND = 100; // pixels, if there is room
const FONT = "12px system-ui, sans-serif";

/** A picture of the attention of a segment; `available` is its width. */
export function listening(segment, available) {
  const canvas = element("canvas", { role: "img", "aria-label": "Attention over time" });
  const draw = () => drawListening(canvas, segment, available);
  draw();
  onSchemeChange(draw);
  return canvas;
}

function drawListening(canvas, { attention: { begin, end, tokens, weights } }, available) {
  const width = Math.max(200, Math.min(available - LABELS - 12, SECOND * (end - begin)));
  const height = ROW * tokens.length;
  const colours = palette();
  const context = sharp(canvas, LABELS + width + 8, height + ROW + 4);
  context.imageSmoothingEnabled = false;
  context.drawImage(raster(scaled(weights), colours.weights, weightShade), LABELS, 0, width, height);
  context.strokeStyle = colours.line;
  context.strokeRect(LABELS, 0, width, height);
  context.fillStyle = colours.ink;
  context.font = FONT;
  context.textBaseline = "middle";
  context.textAlign = "right";
  tokens.forEach((token, row) => context.fillText(token, LABELS - 6, (row + 0.5) * ROW, LABELS - 6));
  context.fillText(`${end.toFixed(1)} s`, LABELS + width, height + ROW / 2 + 2);
  context.textAlign = "left";
  context.fillText(`${begin.toFixed(1)} s`, LABELS, height + ROW / 2 + 2);
}

/** Weights relative to the largest of all: spread over seconds, each is small. */
function scaled(weights) {
  const most = Math.max(...weights.flat());
  return weights.map((row) => row.map((weight) => weight / most));
}
