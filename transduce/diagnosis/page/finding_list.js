/* The findings, the most serious first: each has its figures, what to do, and examples to leaf through. */

import { element, fill } from "./dom.js";
import { rove } from "./keyboard.js";
import { Leaves } from "./leaves.js";

/** Show all findings; the buttons above them hide those of other severities. */
export function showFindings(section, findings, names) {
  const cards = findings.map((finding) => card(finding, names));
  const list = element("div", { class: "findings" }, ...cards);
  fill(section, element("h2", {}, "Findings"), choices(findings, names, list), list);
  list.addEventListener("keydown", (event) => step(event, list));
}

function choices(findings, names, list) {
  const present = Object.keys(names).filter((severity) => findings.some((one) => one.severity === severity));
  if (present.length < 2) return null;
  const group = element("div", { class: "choices", role: "group", "aria-label": "Which findings" });
  const choose = (chosen) => {
    for (const button of group.children) button.setAttribute("aria-pressed", String(button.value === chosen));
    for (const one of list.children) one.hidden = chosen !== "all" && one.dataset.severity !== chosen;
  };
  const button = (value, text) => element("button", { value, "aria-pressed": String(value === "all"), click: () => choose(value) }, text);
  group.append(button("all", `all ${findings.length}`));
  for (const severity of present) {
    const count = findings.filter((one) => one.severity === severity).length;
    group.append(button(severity, `${count} ${names[severity]}`));
  }
  rove(group, "button");
  return group;
}

function card(finding, names) {
  const open = finding.severity === "serious";
  const body = element("div", { class: "finding-body" });
  const title = element(
    "summary",
    {},
    element("span", { class: `severity ${finding.severity}` }, names[finding.severity]),
    element("span", { class: "rule" }, finding.rule),
    element("span", { class: "hint" }, figures(finding)),
  );
  const one = element("details", { class: "finding", "data-severity": finding.severity, open }, title, body);
  const show = () => one.open && !body.childNodes.length && fillBody(body, finding);
  one.addEventListener("toggle", show);
  show();
  return one;
}

function figures({ count, share, corpus }) {
  const where = { train: "training data", valid: "validation data", test: "test data" }[corpus] ?? corpus;
  return count ? `${count.toLocaleString("en")} pairs, ${percent(share)} of the ${where}` : where;
}

function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.01) return "under 0.01 %";
  return `${value.toLocaleString("en", { maximumFractionDigits: value < 1 ? 2 : 1 })} %`;
}

function fillBody(body, finding) {
  const leaves = finding.examples.length ? new Leaves(finding.examples, `Examples of ${finding.rule}`).element : null;
  fill(body, element("p", {}, finding.explanation), element("p", { class: "advice" }, finding.advice), leaves);
}

/** The up and down arrow keys move between the findings. */
function step(event, list) {
  if (event.target.tagName !== "SUMMARY" || !["ArrowUp", "ArrowDown"].includes(event.key)) return;
  const titles = [...list.querySelectorAll(".finding:not([hidden]) > summary")];
  const next = titles[titles.indexOf(event.target) + (event.key === "ArrowDown" ? 1 : -1)];
  if (!next) return;
  event.preventDefault();
  next.focus();
}
