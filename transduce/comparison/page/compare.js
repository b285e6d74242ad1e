/* Starts the page of a comparison: the data are in the page, and there is no server. */

import { byId, element, fill } from "./dom.js";
import { differences } from "./differences.js";
import { scores } from "./scores.js";
import { Sentences } from "./sentence_list.js";

const view = JSON.parse(byId("view").textContent);
const sentences = new Sentences(byId("sentences"), view);

function show(number) {
  fill(byId("differences"), ...differences(view, number));
  sentences.show(number);
}

function start() {
  const names = view.names.slice(1);
  const tests = { bootstrap: "paired bootstrap", randomization: "approximate randomization" };
  const parts = [`${view.sentences.toLocaleString("en")} sentences`, `baseline: ${view.names[0]}`];
  fill(byId("about"), [...parts, `${tests[view.test]}, ${view.samples.toLocaleString("en")} samples`].join(" · "));
  fill(byId("scores"), ...scores(view));
  fill(byId("system"), ...names.map((name) => element("option", { value: name }, name)));
  byId("choose-system").hidden = names.length < 2;
  byId("system").addEventListener("change", (event) => show(event.target.selectedIndex + 1));
  show(1);
}

start();
