/* The paper's three uses of attention, and the attention map of one head in one of them. */

import { labels } from "./pieces.js";

export const USES = {
  cross: {
    title: "Target to source",
    what: "Cross-attention: while it writes a token, the decoder looks at the source.",
    asks: "Writing",
  },
  encoder: {
    title: "Source to source",
    what: "The encoder\u2019s self-attention: each token of the source looks at the whole source.",
    asks: "Reading",
  },
  decoder: {
    title: "Target to target",
    what: "The decoder\u2019s self-attention: while it writes a token, it looks at what it has written so far.",
    asks: "Writing",
  },
};

/** One head: its weights and the labels of the tokens at the sides. */
export function headMap(view, { part, layer, head }) {
  return { weights: view.maps[part][layer][head], rows: asking(view, part), columns: asked(view, part) };
}

export function headName({ part, layer, head }) {
  return `${USES[part].title}, layer ${layer + 1}, head ${head + 1}`;
}

/** In the decoder a place is named after what is being written there, which is what its attention is for. */
function asking(view, part) {
  return labels(part === "encoder" ? view.source.tokens : view.target.tokens);
}

function asked(view, part) {
  return labels(part === "decoder" ? view.target.decoder_input_tokens : view.source.tokens);
}
