/* Tables of figures: the first column names a row, and columns of numbers are aligned to the right. */

import { element } from "./dom.js";

/** `heads` are the titles of the columns; those of columns without numbers are in `texts`, by position. */
export function table(heads, rows, texts = []) {
  const head = heads.map((text, n) => element("th", { class: n && !texts.includes(n) ? "number" : null }, text));
  const parts = [element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)];
  return element("div", { class: "scrolling" }, element("table", {}, ...parts));
}

export function row(name, ...cells) {
  return element("tr", {}, element("th", { scope: "row", dir: "auto" }, name), ...cells);
}

export function number(text) {
  return element("td", { class: "number" }, text);
}

export function count(value) {
  return number(value.toLocaleString("en"));
}
