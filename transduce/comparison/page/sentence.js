/* One sentence of the test set: source, references, both outputs with the words that differ, and their alignments. */

import { alignment } from "./aligned.js";
import { compared } from "./difference.js";
import { element } from "./dom.js";
import { signed } from "./whisker.js";

/** `number` is the system that stands beside the baseline. */
export function sentence(view, number, { row, gain }) {
  const item = element("li", { class: "sentence" });
  const [before, after] = compared(row.outputs[0], row.outputs[number]);
  const lines = [
    line("source", words(row.source.split(/\s+/).filter(Boolean), "source")),
    ...row.references.map((text) => line("reference", [text])),
    line(view.names[0], marked(before, "0")),
    line(view.names[number], marked(after, "1")),
  ];
  item.append(element("dl", {}, ...lines), figures(view, number, row, gain, item));
  light(item, "0", row.alignments[0]);
  light(item, "1", row.alignments[number]);
  return item;
}

function line(name, children) {
  return element("div", {}, element("dt", { dir: "auto" }, name), element("dd", { dir: "auto" }, ...children));
}

function words(texts, side) {
  return texts.flatMap((text, n) => [n ? " " : "", element("span", { "data-side": side, "data-word": n }, text)]);
}

function marked(parts, side) {
  return parts.flatMap(({ word, changed }, n) => [
    n ? " " : "",
    element(changed ? "mark" : "span", { "data-side": side, "data-word": n }, word),
  ]);
}

function figures(view, number, row, gain, item) {
  const [one, other] = [row.scores[0], row.scores[number]].map((score) => score.toFixed(1));
  const parts = [
    element("span", {}, `line ${row.line}`),
    element("span", {}, `${view.sentence_metric} ${one} \u2192 ${other}`),
    element("span", { class: "gain" }, gain ? signed(gain) : "equal"),
    ...links(view, number, row),
  ];
  const isAligned = [0, number].some((system) => row.alignments[system].length);
  if (isAligned) parts.push(alignmentButton(view, number, row, item));
  return element("p", { class: "figures" }, ...parts);
}

/** Links to the sentence in the explorer, for systems that are run folders. */
function links(view, number, row) {
  return [0, number]
    .filter((system) => view.models[system] !== null)
    .map((system) => {
      const asked = new URLSearchParams({ text: row.source, model: view.models[system] });
      const href = `${view.explorer}#inside?${asked}`;
      return element("a", { href, target: "_blank", rel: "noopener noreferrer" }, `Explore with ${view.names[system]}`);
    });
}

function alignmentButton(view, number, row, item) {
  const toggle = (event) => {
    const shown = item.querySelector(".alignment");
    event.target.setAttribute("aria-expanded", String(!shown));
    if (shown) for (const drawn of item.querySelectorAll(".alignment")) drawn.remove();
    else {
      const systems = [0, number].filter((system) => row.alignments[system].length);
      item.append(...systems.map((n) => alignment(view.names[n], row.source, row.outputs[n], row.alignments[n])));
    }
  };
  const attributes = { type: "button", class: "link", "aria-expanded": "false", click: toggle };
  return element("button", attributes, "Show alignments");
}

/** Pointing at a word underlines the words that it is aligned with. */
function light(item, side, pairs) {
  const find = (of, number) => item.querySelector(`[data-side="${of}"][data-word="${number}"]`);
  for (const [from, to] of pairs) {
    const both = [find("source", from), find(side, to)];
    if (!both.every(Boolean)) continue;
    for (const word of both) {
      word.addEventListener("pointerenter", () => both.forEach((one) => one.classList.add("lit")));
      word.addEventListener("pointerleave", () => both.forEach((one) => one.classList.remove("lit")));
    }
  }
}
