/* Starts the page: the chosen model, sentence and panel, and the requests that the open panel needs. */

import { byId, element, fill } from "./dom.js";
import { Inside } from "./inside.js";
import { Latest } from "./latest.js";
import { remember, remembered } from "./memory.js";
import { languageName } from "./pieces.js";
import { saveAsPage, saveAsPicture } from "./saving.js";
import { isSeveral } from "./sentences.js";
import { explore, models, training } from "./server.js";
import { Tabs } from "./tabs.js";
import { Training } from "./training.js";
import { Translate } from "./translate.js";
import { Tree } from "./tree.js";

const TYPING_MS = 350; // a pause this long means the writer waits for the page
const WATCH_MS = 2500; // between looks at a run that goes on
const MOST_EXAMPLES = 3;
const PROMISES = {
  translate: "Type a sentence above and stop for a moment: the translation appears by itself.",
  search: "Type a sentence above to see step by step how the search came to its translation.",
  inside: "Type a sentence above to see what every head looks at while the model reads it and writes its translation.",
  training: "",
};
const SEVERAL =
  "This page looks at one sentence at a time and takes all of this as one. The API splits texts at sentence ends.";

const text = byId("text");
const latest = new Latest();
const asked = { model: "", target: null, off: [] };
const panels = {
  translate: new Translate(byId("translate"), (target) => lookInside(target)),
  search: new Tree(byId("search"), () => refresh()),
  inside: new Inside(byId("inside"), {
    switchOff,
    saves: [
      ["Save as page", saveAsPage],
      ["Save as picture", saveAsPicture],
    ],
  }),
  training: new Training(byId("training")),
};
const shown = {}; // the key of what each panel shows, so that going back and forth asks nothing twice
const shownOf = {}; // and the model and sentence it is of
let underWay = "";
const tabs = new Tabs(byId("tabs"), () => refresh());
let typing = 0;
let watching = 0;

const questions = {
  translate: (signal) => explore("translate", { model: asked.model, text: sentence() }, signal),
  search: (signal) => explore("tree", { model: asked.model, text: sentence(), beam: panels.search.size }, signal),
  inside: (signal) =>
    explore("attention", { model: asked.model, text: sentence(), target_text: asked.target, off: asked.off }, signal),
  training: (signal) => training(asked.model, signal),
};

function sentence() {
  return text.value.trim();
}

function keyOf(name) {
  const key = {
    translate: [sentence()],
    search: [sentence(), panels.search.size],
    inside: [sentence(), asked.target, asked.off],
    training: [],
  };
  return JSON.stringify([asked.model, ...key[name]]);
}

function subjectOf(name) {
  return JSON.stringify([asked.model, name === "training" ? "" : sentence()]);
}

/** Bring the open panel up to date. */
async function refresh() {
  const name = tabs.name;
  clearTimeout(watching);
  byId("writing").hidden = name === "training";
  const lacksText = name !== "training" && !sentence();
  byId("hint").hidden = !lacksText;
  fill(byId("promise"), PROMISES[name]);
  warnOfSeveral();
  if (lacksText) byId(name).classList.add("nothing-to-show");
  if (!asked.model || lacksText) return say("");
  const [key, subject] = [keyOf(name), subjectOf(name)];
  if (underWay === name + key) return undefined;
  if (shown[name] === key && name !== "training") {
    byId(name).classList.remove("nothing-to-show");
    return say("");
  }
  underWay = name + key;
  const slow = setTimeout(() => byId(name).setAttribute("aria-busy", "true"), 150);
  try {
    const view = await latest.ask(questions[name]);
    if (view === undefined) return undefined;
    say("");
    byId(name).classList.remove("nothing-to-show");
    panels[name].show(view);
    shown[name] = key;
    shownOf[name] = subject;
    if (name === "training" && view.running) watching = setTimeout(refresh, WATCH_MS);
  } catch (error) {
    say(error.message);
    byId(name).classList.toggle("nothing-to-show", shownOf[name] !== subject); // it would look like the answer
  } finally {
    clearTimeout(slow);
    if (underWay === name + key) underWay = "";
    byId(name).removeAttribute("aria-busy");
  }
  return undefined;
}

function warnOfSeveral() {
  const several = isSeveral(sentence());
  fill(byId("several"), several ? SEVERAL : "");
  byId("several").hidden = !several;
}

function say(message) {
  fill(byId("message"), message);
  byId("message").hidden = !message;
}

function lookInside(target) {
  asked.target = target;
  asked.off = [];
  tabs.open("inside");
}

/** Without these heads the model shall translate anew, so a target chosen before no longer holds. */
function switchOff(heads) {
  asked.off = heads;
  asked.target = null;
  refresh();
}

function write(sentenceToShow) {
  text.value = sentenceToShow;
  begin();
}

function begin() {
  remember(text.value);
  asked.target = null;
  asked.off = [];
  refresh();
}

async function chooseModel(model) {
  asked.model = model.name;
  const pair = [model.source, model.target].filter(Boolean).map(languageName);
  fill(byId("languages"), pair.length === 2 ? `${pair[0]} \u2192 ${pair[1]}` : (model.description ?? ""));
  text.placeholder = pair.length === 2 ? `Type something in ${pair[0]}` : "Type something";
  text.lang = model.source ?? "";
  begin();
  showExamples(await training(model.name).catch(() => null));
}

/** Sentences to begin with: those the run translated at its validations. */
function showExamples(view) {
  const samples = view?.validations.at(-1)?.samples ?? [];
  const button = ({ source }) =>
    element("button", { type: "button", class: "example", dir: "auto", click: () => write(source) }, source);
  fill(byId("examples"), ...samples.slice(0, MOST_EXAMPLES).map(button));
}

async function start() {
  text.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(begin, TYPING_MS);
  });
  text.value ||= remembered();
  tabs.open(location.hash.slice(1));
  try {
    const found = await models();
    fill(byId("model"), ...found.map(({ name }) => element("option", { value: name }, name)));
    byId("model").addEventListener("change", (event) => chooseModel(found[event.target.selectedIndex]));
    byId("choose-model").hidden = found.length < 2;
    if (found.length) await chooseModel(found[0]);
    else say("The server has no model to show.");
  } catch (error) {
    say(error.message);
  }
}

start();
