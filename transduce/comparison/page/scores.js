/* The verdicts in words, and a table of scores, differences and p for each metric. */

import { element } from "./dom.js";
import { number, row, table } from "./table.js";
import { range, reachOf, signed, whisker } from "./whisker.js";

const P_VALUES = [
  "p is sacreBLEU\u2019s. The corrected p counts differences of either sign at least as large as the real one,",
  "and is corrected for the number of systems (Holm). Below 0.05, a difference is shown.",
].join(" ");
const HEADS = ["score", "95% interval", "difference", "95% interval", "", "p", "corrected p", ""];

export function scores(view) {
  const main = view.metrics[0];
  const verdicts = main.systems.slice(1).map(({ verdict }, n) => element("li", { class: verdict }, view.verdicts[n]));
  return [
    element("ul", { class: "verdicts" }, ...verdicts),
    ...(view.caveat ? [element("p", { class: "hint caveat" }, view.caveat)] : []),
    ...view.metrics.flatMap(metricTable),
    element("p", { class: "hint" }, P_VALUES),
  ];
}

function metricTable(metric) {
  const reach = reachOf(metric.systems.filter(({ test }) => test).map(({ test }) => test));
  const rows = metric.systems.map((system) => scoreRow(system, reach));
  return [
    table([metric.title, ...HEADS], rows, [5, 8]),
    ...metric.systems.filter(({ seeds }) => seeds.length > 1).map(seedsOf),
    element("p", { class: "signature" }, metric.signature),
  ];
}

function scoreRow({ name, score, interval, test, verdict }, reach) {
  const plain = (value) => value.toFixed(2);
  const tested = test
    ? [
        number(signed(test.difference)),
        number(range(test.interval)),
        element("td", {}, whisker(test.difference, test.interval, reach)),
        number(equal(test) ? "" : test.p.toFixed(4)),
        number(equal(test) ? "" : test.p_corrected.toFixed(4)),
      ]
    : Array.from({ length: 5 }, () => element("td"));
  return row(name, number(plain(score)), number(range(interval, plain)), ...tested, element("td", {}, verdict));
}

/* sacreBLEU's p of two equal systems is the smallest there is, which says nothing about them. */
const equal = ({ difference, interval }) => difference === 0 && interval.low === 0 && interval.high === 0;

function seedsOf({ name, seeds }) {
  const listed = seeds.map((score) => score.toFixed(2)).join(", ");
  const spread = (Math.max(...seeds) - Math.min(...seeds)).toFixed(2);
  return element("p", { class: "hint" }, `Seeds of ${name}: ${listed} (spread ${spread})`);
}
