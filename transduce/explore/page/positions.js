/* Draws the positional encoding and the attention masks of a sentence. */

import { signShade, weightShade } from "./colours.js";
import { element, fill } from "./dom.js";
import { labels } from "./pieces.js";
import { raster } from "./raster.js";
import { USES } from "./uses.js";

const KINDS = {
  sinusoidal:
    "Sines and cosines as in the paper, added to the embeddings. The frequencies fall from left to right.",
  marian: "Sines and cosines with Marian\u2019s frequencies, added to the embeddings.",
  learned: "A learned vector for each position, added to the embeddings.",
  rotary: "Rotary embeddings: sine and cosine of the angles by which queries and keys are rotated. Nothing is added.",
  none: "This model has no positional encoding: it knows the order of tokens only from the decoder\u2019s causal mask.",
  implicit: "There is no positional encoding to draw: this model knows the order of tokens from how it reads them.",
};

export function drawPositions(container, view, colours) {
  const { kind, source } = view.positions;
  if (!source.length) {
    fill(container, element("p", { class: "readout" }, KINDS[kind]));
    return;
  }
  const picture = raster(source, colours.signs, signShade);
  picture.setAttribute("role", "img");
  picture.setAttribute("aria-label", `Positional encoding: ${source.length} positions by ${source[0].length} features`);
  const readout = element("p", { class: "readout" }, KINDS[kind]);
  picture.addEventListener("pointermove", (event) => say(readout, event, picture, view));
  picture.addEventListener("pointerleave", () => fill(readout, KINDS[kind]));
  fill(
    container,
    element(
      "div",
      { class: "positions" },
      element("div", { class: "ends", "aria-hidden": "true" }, ...ends(view)),
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
  const position = within((event.clientY - box.top) / box.height, rows.length);
  const token = labels(view.source.tokens)[position];
  const feature = within((event.clientX - box.left) / box.width, rows[0].length);
  fill(
    readout,
    `Position ${position}, ${token}: feature ${feature} is ${rows[position][feature].toFixed(2)}.`,
  );
}

const MASKS = {
  encoder: "Every source token may attend to every source token.",
  decoder: "A target position may attend to itself and to earlier positions; the upper triangle is masked.",
  cross: "Every target position may attend to every source token.",
};

export function drawMasks(container, view, colours) {
  fill(
    container,
    ...["encoder", "decoder", "cross"].filter((part) => view.masks[part].length).map((part) => {
      const picture = raster(view.masks[part], colours.weights, (value) => weightShade(0.45 * value));
      picture.setAttribute("role", "img");
      picture.setAttribute("aria-label", `Mask, ${USES[part].title}. ${MASKS[part]}`);
      return element(
        "figure",
        {},
        picture,
        element("figcaption", {}, element("b", {}, `${USES[part].title}:`), " ", MASKS[part]),
      );
    }),
  );
}
