/* Renders the subset of Markdown that model cards use: headings, lists, tables, fenced code, paragraphs. */

import { element } from "./dom.js";

/** Elements for a text; unsupported syntax stays plain text. */
export function markdown(text) {
  const lines = text.split("\n");
  const blocks = [];
  while (lines.length) {
    const block = fenced(lines) ?? heading(lines) ?? table(lines) ?? list(lines) ?? paragraph(lines);
    if (block) blocks.push(block);
  }
  return blocks;
}

function taken(lines, belongs) {
  const end = lines.findIndex((line) => !belongs(line));
  return lines.splice(0, end < 0 ? lines.length : end);
}

function fenced(lines) {
  if (!lines[0].startsWith("```")) return null;
  lines.shift();
  const code = taken(lines, (line) => !line.startsWith("```"));
  lines.shift();
  return element("pre", {}, element("code", {}, code.join("\n")));
}

function heading(lines) {
  const found = /^(#{1,4}) (.*)$/.exec(lines[0]);
  if (!found) return null;
  lines.shift();
  return element(`h${Math.min(6, found[1].length + 2)}`, {}, ...inline(found[2]));
}

function table(lines) {
  if (!lines[0].startsWith("|")) return null;
  const [head, , ...rows] = taken(lines, (line) => line.startsWith("|")).map(cells);
  const row = (kind, texts) => element("tr", {}, ...texts.map((text) => element(kind, {}, ...inline(text))));
  const body = element("tbody", {}, ...rows.map((texts) => row("td", texts)));
  return element(
    "div",
    { class: "scrolling", tabindex: "0", role: "group", "aria-label": "Table" },
    element("table", {}, element("thead", {}, row("th", head)), body),
  );
}

/** The cells of a row; an escaped bar is part of a cell. */
function cells(line) {
  return line
    .split(/(?<!\\)\|/)
    .slice(1, -1)
    .map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function list(lines) {
  if (!lines[0].startsWith("- ")) return null;
  const items = taken(lines, (line) => line.startsWith("- "));
  return element("ul", {}, ...items.map((item) => element("li", {}, ...inline(item.slice(2)))));
}

function paragraph(lines) {
  const first = lines.shift();
  if (!first.trim()) return null;
  const rest = taken(lines, (line) => line.trim() && !/^(#|\||- |```)/.test(line));
  return element("p", {}, ...inline([first, ...rest].join(" ")));
}

function inline(text) {
  return text.split(/(`[^`]+`)/).map((part) => (/^`.+`$/.test(part) ? element("code", {}, part.slice(1, -1)) : part));
}
