/* Saves the view as one self-contained page or as one picture. */

import { palette, weightShade } from "./colours.js";
import { element } from "./dom.js";
import { connections, linesLayout } from "./lines.js";
import { drawMatrix, matrixLayout } from "./matrix.js";
import { raster } from "./raster.js";
import { pageFile } from "./server.js";
import { headName } from "./uses.js";

const MARKER = "{{view}}"; // the same as in page/__init__.py
const FONT = "system-ui, sans-serif";
const MARGIN = 28;
const SMALL = 92; // width and height of a small map
const WIDEST_TABLE = 1_500;
const RATIO = 2; // pixels of the picture per layout pixel

/** Save one self-contained file: the template with the view inserted. */
export async function saveAsPage({ view }) {
  const shell = await pageFile("standalone.html");
  const data = JSON.stringify(view).replaceAll("<", "\\u003c");
  save(new Blob([shell.replace(MARKER, () => data)], { type: "text/html" }), "attention.html");
}

export function saveAsPicture({ view, chosen, map }) {
  drawPicture(view, chosen, map).toBlob((blob) => save(blob, "attention.png"), "image/png");
}

function save(blob, name) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

/** Title and sentences, all heads as small maps on the left, the selected head as a table and as lines. */
export function drawPicture(view, chosen, map) {
  const colours = palette();
  const canvas = document.createElement("canvas");
  const context = canvas.getContext("2d");
  const layers = view.maps[chosen.part];
  const table = matrixLayout(context, map, WIDEST_TABLE);
  const columns = linesLayout(map, 420);
  const overview = layers[0].length * (SMALL + 6);
  const top = MARGIN + 84;
  const width = 2 * MARGIN + overview + 24 + table.width + 24 + columns.width;
  const height = top + Math.max(layers.length * (SMALL + 6), table.height, columns.height) + MARGIN;
  canvas.width = width * RATIO;
  canvas.height = height * RATIO;
  context.scale(RATIO, RATIO);
  context.fillStyle = colours.paper;
  context.fillRect(0, 0, width, height);
  drawHeading(context, view, chosen, colours, width);
  at(context, MARGIN, top, () => drawOverview(context, layers, chosen, colours));
  at(context, MARGIN + overview + 24, top, () => drawMatrix(context, map, table, colours));
  at(context, width - MARGIN - columns.width, top, () => drawLines(context, map, columns, colours));
  return canvas;
}

function at(context, x, y, draw) {
  context.save();
  context.translate(x, y);
  draw();
  context.restore();
}

function drawHeading(context, view, chosen, colours, width) {
  const write = (text, font, colour, y) => {
    context.font = font;
    context.fillStyle = colour;
    context.fillText(text, MARGIN, y, width - 2 * MARGIN);
  };
  write(headName(chosen), `600 18px ${FONT}`, colours.ink, MARGIN + 14);
  write(view.source.text, `14px ${FONT}`, colours.muted, MARGIN + 40);
  write(view.target.text, `14px ${FONT}`, colours.ink, MARGIN + 62);
}

function drawOverview(context, layers, chosen, colours) {
  context.imageSmoothingEnabled = false;
  layers.forEach((heads, layer) =>
    heads.forEach((weights, head) => {
      const [x, y] = [head * (SMALL + 6), layer * (SMALL + 6)];
      context.drawImage(raster(weights, colours.weights, weightShade), x, y, SMALL, SMALL);
      const isChosen = layer === chosen.layer && head === chosen.head;
      context.strokeStyle = isChosen ? colours.strong : colours.line;
      context.lineWidth = isChosen ? 2.5 : 1;
      context.strokeRect(x, y, SMALL, SMALL);
    }),
  );
}

function drawLines(context, map, layout, colours) {
  const { from: left, to: right, y, size } = layout;
  context.strokeStyle = colours.accent;
  for (const { from, to, weight } of connections(map)) {
    context.globalAlpha = weight;
    context.lineWidth = 0.8 + 2.4 * weight;
    context.beginPath();
    context.moveTo(left, y(from, map.rows.length));
    context.lineTo(right, y(to, map.columns.length));
    context.stroke();
  }
  context.globalAlpha = 1;
  context.fillStyle = colours.ink;
  context.font = `${size}px ${FONT}`;
  context.textBaseline = "middle";
  context.textAlign = "right";
  map.rows.forEach((text, row) => context.fillText(text, left - 8, y(row, map.rows.length), left - 8));
  context.textAlign = "left";
  map.columns.forEach((text, column) =>
    context.fillText(text, right + 8, y(column, map.columns.length), layout.width - right - 8),
  );
}
