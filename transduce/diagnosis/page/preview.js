/* What `transduce train` would do with this corpus: pairs it leaves out, settings it chooses, limits of the rules. */

import { element, fill } from "./dom.js";

/** Show the tables that have rows. */
export function showTraining(section, { left_out, settings, reasons, minutes, thresholds, corpora }) {
  const budget = minutes ? `in ${plain(minutes)} minutes` : "without a budget in minutes";
  fill(
    section,
    table("Files", ["files", "pairs"], corpora.map((one) => [one.files.join(" "), one.pairs.toLocaleString("en")])),
    table("Pairs that train would leave out", ["reason", "pairs"], entries(left_out, (count) => count.toLocaleString("en"))),
    table(`Settings that train would choose ${budget}`, ["setting", "value"], entries(settings, plain)),
    reasons.length ? element("ul", {}, ...reasons.map((reason) => element("li", {}, reason))) : null,
    table("Limits of the rules", ["limit", "value", "from"], Object.entries(thresholds).map(([name, one]) => [name, plain(one.value), one.origin])),
  );
}

function entries(values, format) {
  return Object.entries(values).map(([name, value]) => [name, format(value)]);
}

function plain(value) {
  if (typeof value === "number") return value.toLocaleString("en", { maximumFractionDigits: 3 });
  return typeof value === "string" ? value : JSON.stringify(value);
}

function table(title, heads, rows) {
  if (!rows.length) return null;
  const cells = (name, values) => element("tr", {}, ...values.map((value) => element(name, {}, value)));
  const made = element("table", {}, element("thead", {}, cells("th", heads)), element("tbody", {}, ...rows.map((row) => cells("td", row))));
  return element("div", {}, element("h2", {}, title), element("div", { class: "scrolling" }, made));
}
