/* The paper's three uses of attention, and the attention map of one head in one of them. */

import { labels } from "./pieces.js";

/** `query` names the query of a row, whose label is the argument. */
export const USES = {
  cross: {
    title: "Cross-attention",
    what: "Each target position of the decoder attends to the source. A row is labelled with the token it predicts.",
    query: predicting,
  },
  encoder: {
    title: "Encoder self-attention",
    what: "Each source token attends to all source tokens.",
    query: (token) => token,
  },
  decoder: {
    title: "Decoder self-attention",
    what: "Each target position attends to the tokens generated so far. A row is labelled with the token it predicts.",
    query: predicting,
  },
};

/** One head: its weights, and the labels of its queries (rows) and keys (columns). */
export function headMap(view, { part, layer, head }) {
  return { weights: view.maps[part][layer][head], rows: queries(view, part), columns: keys(view, part) };
}

export function headName({ part, layer, head }) {
  return `${USES[part].title}, layer ${layer + 1}, head ${head + 1}`;
}

function predicting(token) {
  return `The decoder, predicting ${token},`;
}

/** A query of the decoder is labelled with the token it predicts, since that is what its attention is used for. */
function queries(view, part) {
  return labels(part === "encoder" ? view.source.tokens : view.target.tokens);
}

function keys(view, part) {
  return labels(part === "decoder" ? view.target.decoder_input_tokens : view.source.tokens);
}
