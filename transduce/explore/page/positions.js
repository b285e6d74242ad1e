/* Draws the positional encoding and the attention masks of a sentence. */

import { signShade, weightShade } from "./colours.js";
import { element, fill } from "./dom.js";
import { labels } from "./pieces.js";
import { raster } from "./raster.js";
import { USES } from "./uses.js";

const KINDS = {
  sinusoidal:
    "Sines and cosines, as in the paper, fast on the left, slow on the right. They are added to the embeddings.",
  marian: "Sines and cosines with Marian\u2019s frequencies, added to the embeddings.",
  learned: "Vectors learned in training, one a place, added to the embeddings.",
  rotary: "Rotary positions: sine and cosine of the angle by which queries and keys are turned. Nothing is added.",
  none: "This model has no positions: only the mask tells it what comes first.",
};

export function drawPositions(container, view, colours) {
  const { kind, source } = view.positions;
  const picture = raster(source, colours.signs, signShade);
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `Positional encoding: ${source.length} places by ${source[0].length} features`);
  const readout = element("p", { class: "readout" }, KINDS[kind]);
  picture.addEventListener("pointermove", (event) => say(readout, event, picture, view));
  picture.addEventListener("pointerleave", () => fill(readout, KINDS[kind]));
  fill(
    container,
    element(
      "div",
      { class: "positions" },
      element("div", { class: "places", "aria-hidden": "true" }, ...ends(view)),
      picture,
    ),
    readout,
  );
}

function ends(view) {
  const tokens = labels(view.source.tokens);
  return [element("span", {}, `0 ${tokens[0]}`), element("span", {}, `${tokens.length - 1} ${tokens.at(-1)}`)];
}

function say(readout, event, picture, view) {
  const box = picture.getBoundingClientRect();
  const within = (share, count) => Math.min(count - 1, Math.max(0, Math.floor(share * count)));
  const rows = view.positions.source;
  const place = within((event.clientY - box.top) / box.height, rows.length);
  const feature = within((event.clientX - box.left) / box.width, rows[0].length);
  fill(
    readout,
    `Place ${place}, ${labels(view.source.tokens)[place]}: feature ${feature} is ${rows[place][feature].toFixed(2)}.`,
  );
}

const MASKS = {
  encoder: "The source may look at all of itself.",
  decoder: "The target may look back, never ahead: the upper triangle is closed.",
  cross: "The target may look at all of the source.",
};

export function drawMasks(container, view, colours) {
  fill(
    container,
    ...["encoder", "decoder", "cross"].map((part) => {
      const picture = raster(view.masks[part], colours.weights, (value) => weightShade(0.45 * value));
      picture.setAttribute("role", "img");
      picture.setAttribute("aria-label", `Mask, ${USES[part].title}. ${MASKS[part]}`);
      return element(
        "figure",
        {},
        picture,
        element("figcaption", {}, element("b", {}, USES[part].title), " ", MASKS[part]),
      );
    }),
  );
}
