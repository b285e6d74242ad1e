/* Where a system differs from the baseline: sentences won and lost, groups of sentences, n-grams, and habits of the outputs. */

import { element } from "./dom.js";
import { range, reachOf, signed, whisker } from "./whisker.js";

const UNCORRECTED = "Intervals of groups are not corrected for their number: take them as hints.";

export function differences(view, number) {
  const pair = view.pairs[number - 1];
  return [
    element("h2", {}, `Sentences: ${pair.system} against ${view.names[0]}, by ${view.sentence_metric}`),
    outcome(pair),
    ...groupTable(view, pair),
    element("div", { class: "beside" }, ngrams("gets more often", pair.gained, view, pair), ngrams("gets less often", pair.lost, view, pair)),
    element("h2", {}, "Length and repetition"),
    habits(view),
    ...view.notes.map((note) => element("p", { class: "hint" }, note)),
  ];
}

function outcome({ wins, ties, losses }) {
  const part = (name, count, label) => {
    const made = element("span", { class: name }, `${count.toLocaleString("en")} ${label}`);
    made.style.setProperty("--share", count);
    made.hidden = !count;
    return made;
  };
  return element("div", { class: "outcome" }, part("win", wins, "better"), part("tie", ties, "equal"), part("loss", losses, "worse"));
}

function groupTable(view, pair) {
  if (!pair.groups.length) return [];
  const heads = ["", "sentences", view.names[0], pair.system, "difference", "95% interval", ""];
  const reach = reachOf(pair.groups);
  const rows = pair.groups.flatMap((group, n) => [
    pair.groups[n - 1]?.kind === group.kind
      ? null
      : element("tr", { class: "kind" }, element("th", { colspan: 7, scope: "rowgroup" }, group.kind)),
    groupRow(group, reach),
  ]);
  const head = element("tr", {}, ...heads.map((text, n) => element("th", { class: n && n < 6 ? "number" : null }, text)));
  const table = element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows.filter(Boolean)));
  return [
    element("h2", {}, `Where they differ (${view.metrics[0].title})`),
    element("div", { class: "scrolling" }, table),
    element("p", { class: "hint" }, UNCORRECTED),
  ];
}

function groupRow({ name, sentences, baseline, system, difference, interval }, reach) {
  const number = (text) => element("td", { class: "number" }, text);
  return element(
    "tr",
    {},
    element("th", { scope: "row", dir: "auto" }, name),
    number(sentences.toLocaleString("en")),
    number(baseline.toFixed(2)),
    number(system.toFixed(2)),
    number(signed(difference)),
    number(range(interval)),
    element("td", {}, whisker(difference, interval, reach)),
  );
}

function ngrams(title, grams, view, pair) {
  const number = (text) => element("td", { class: "number" }, text);
  const rows = grams.map(({ text, baseline, system }) =>
    element("tr", {}, element("td", { dir: "auto" }, text), number(baseline), number(system)),
  );
  const heads = ["n-gram", view.names[0], pair.system];
  const head = element("tr", {}, ...heads.map((text, n) => element("th", { class: n ? "number" : null }, text)));
  return element(
    "div",
    {},
    element("h2", {}, `n-grams of the references that ${pair.system} ${title}`),
    grams.length
      ? element("div", { class: "scrolling" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)))
      : element("p", { class: "hint" }, "None."),
  );
}

function habits(view) {
  const number = (text) => element("td", { class: "number" }, text);
  const heads = ["", "output / reference length", "outputs that repeat themselves", "empty outputs"];
  const rows = view.habits.map(({ length_ratio, repetitive, empty }, n) =>
    element("tr", {}, element("th", { scope: "row" }, view.names[n]), number(length_ratio.toFixed(3)), number(repetitive), number(empty)),
  );
  const head = element("tr", {}, ...heads.map((text, n) => element("th", { class: n ? "number" : null }, text)));
  return element("div", { class: "scrolling" }, element("table", {}, element("thead", {}, head), element("tbody", {}, ...rows)));
}
