/* Starts the page of an examination: the report is in the page, and there is no server. */

import { byId, element, fill } from "./dom.js";
import { histogram } from "./histogram.js";
import { showFindings } from "./finding_list.js";
import { showRanking } from "./ranked_pairs.js";
import { scatter } from "./scatter.js";
import { showTraining } from "./preview.js";

const NAMES = { serious: "serious", notable: "worth a look", note: "note" };

const report = JSON.parse(byId("view").textContent);
fill(byId("about"), about(report));
fill(byId("verdict"), verdict(report.findings));
showFindings(byId("findings"), report.findings, NAMES);
showRanking(byId("ranking"), report.ranking);
showDistributions(byId("distributions"), report.statistics);
showTraining(byId("training"), report);

function about({ pairs, corpora, seconds }) {
  const files = corpora.reduce((sum, corpus) => sum + corpus.files.length, 0);
  return `${pairs.toLocaleString("en")} pairs in ${files} ${files === 1 ? "file" : "files"}, read in ${seconds.toFixed(1)} s`;
}

function verdict(findings) {
  if (!findings.length) return "Nothing was found.";
  const counts = Object.entries(NAMES).map(([severity, name]) => [findings.filter((one) => one.severity === severity).length, name]);
  return `Found: ${counts.filter(([count]) => count).map(([count, name]) => `${count} ${name === "note" && count > 1 ? "notes" : name}`).join(", ")}.`;
}

function showDistributions(section, statistics) {
  const charts = [
    histogram("Length of the source", "characters", statistics.source_lengths),
    histogram("Length of the target", "characters", statistics.target_lengths),
    histogram("Target length / source length", "", statistics.length_ratios),
    scatter("Lengths of a sample of pairs", statistics.scatter),
  ].filter((chart) => chart);
  if (charts.length) fill(section, element("h2", {}, "Lengths"), element("div", { class: "charts" }, ...charts));
}
