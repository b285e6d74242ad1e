/* Where a system differs from the baseline: sentences won and lost, groups of sentences, n-grams, and length. */

import { element } from "./dom.js";
import { count, number, row, table } from "./table.js";
import { range, reachOf, signed, whisker } from "./whisker.js";

const UNCORRECTED = "Intervals of groups are not corrected for their number: take them as hints.";

export function differences(view, system) {
  const pair = view.pairs[system - 1];
  const names = [view.names[0], pair.system];
  return [
    element("h2", {}, `Sentences: ${pair.system} against ${view.names[0]}, by ${view.sentence_metric}`),
    outcome(pair),
    ...groups(view, pair),
    element(
      "div",
      { class: "beside" },
      ngrams("gets more often", pair.gained, names),
      ngrams("gets less often", pair.lost, names),
    ),
    element("h2", {}, "Length and repetition"),
    habits(view),
    ...view.notes.map((note) => element("p", { class: "hint" }, note)),
  ];
}

function outcome({ wins, ties, losses }) {
  const part = (name, sentences, label) => {
    const made = element("span", { class: name }, `${sentences.toLocaleString("en")} ${label}`);
    made.style.setProperty("--share", sentences);
    made.hidden = !sentences;
    return made;
  };
  const parts = [part("win", wins, "better"), part("tie", ties, "equal"), part("loss", losses, "worse")];
  return element("div", { class: "outcome" }, ...parts);
}

function groups(view, pair) {
  if (!pair.groups.length) return [];
  const reach = reachOf(pair.groups);
  const rows = pair.groups.flatMap((group, n) => [
    ...(pair.groups[n - 1]?.kind === group.kind ? [] : [kindRow(group.kind)]),
    groupRow(group, reach),
  ]);
  const heads = ["", "sentences", view.names[0], pair.system, "difference", "95% interval", ""];
  return [
    element("h2", {}, `Where they differ (${view.metrics[0].title})`),
    table(heads, rows, [6]),
    element("p", { class: "hint" }, UNCORRECTED),
  ];
}

function kindRow(kind) {
  return element("tr", { class: "kind" }, element("th", { colspan: 7, scope: "rowgroup" }, kind));
}

function groupRow({ name, sentences, baseline, system, difference, interval }, reach) {
  return row(
    name,
    count(sentences),
    number(baseline.toFixed(2)),
    number(system.toFixed(2)),
    number(signed(difference)),
    number(range(interval)),
    element("td", {}, whisker(difference, interval, reach)),
  );
}

function ngrams(title, grams, names) {
  const rows = grams.map(({ text, baseline, system }) => row(text, count(baseline), count(system)));
  const none = element("p", { class: "hint" }, "None.");
  return element(
    "div",
    {},
    element("h2", {}, `n-grams of the references that ${names[1]} ${title}`),
    grams.length ? table(["n-gram", ...names], rows) : none,
  );
}

function habits(view) {
  const rows = view.habits.map(({ length_ratio: ratio, repetitive, empty }, n) =>
    row(view.names[n], number(ratio.toFixed(3)), count(repetitive), count(empty)),
  );
  return table(["", "output / reference length", "outputs that repeat themselves", "empty outputs"], rows);
}
