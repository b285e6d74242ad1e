/* The translation of the panel Look inside, compared with that of all heads if some are off; or a language model's text. */

import { compared } from "./difference.js";
import { element, fill } from "./dom.js";
import { Popover, shadedText } from "./shaded.js";

const EXPECTED = [
  "The stronger the colour of a token, the less the model expected it. Point at a token or tap it to see what else",
  "it expected there. The last token is not in the text: it is the most probable next one.",
].join(" ");
let popover = null;

export function drawResult(container, view, whole) {
  if (view.predictions) {
    popover ??= new Popover();
    fill(container, shadedText(view.predictions, popover), element("p", { class: "hint" }, EXPECTED));
    return;
  }
  const isComparable = view.off.length && whole && whole.source.text === view.source.text;
  fill(container, ...(isComparable ? beforeAndAfter(view, whole) : [translation(view.target.text)]));
}

function translation(...content) {
  return element("p", { class: "translation", dir: "auto" }, ...content);
}

function beforeAndAfter(view, whole) {
  const [before, after] = compared(whole.target.text, view.target.text);
  const isSame = view.target.text === whole.target.text;
  const count = view.off.length === 1 ? "one head" : `${view.off.length} heads`;
  const said = isSame ? "The translation did not change." : "Words that changed are marked.";
  return [
    element("p", { class: "before", dir: "auto" }, element("b", {}, "All heads on "), ...marked(before)),
    translation(element("b", {}, `Without ${count} `), ...marked(after)),
    element("p", { class: "hint", role: "status" }, said),
  ];
}

function marked(words) {
  return words.flatMap(({ word, changed }) => [changed ? element("mark", {}, word) : word, " "]);
}
