/* The translation of the panel Look inside; if heads are switched off, compared with that of all heads. */

import { compared } from "./difference.js";
import { element, fill } from "./dom.js";

export function drawResult(container, view, whole) {
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
