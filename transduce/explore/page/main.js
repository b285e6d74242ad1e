/* The page's beginning: which model, which sentence, which panel; asks the server for what the open panel shows. */

import { byId, element, fill } from "./dom.js";
import { Inside } from "./inside.js";
import { Latest } from "./latest.js";
import { languageName } from "./pieces.js";
import { saveAsPage, saveAsPicture } from "./saving.js";
import { explore, models, training } from "./server.js";
import { Tabs } from "./tabs.js";
import { Training } from "./training.js";
import { Translate } from "./translate.js";
import { Tree } from "./tree.js";

const TYPING_MS = 350; // a pause this long means the writer waits for the page
const WATCH_MS = 2500; // between looks at a run that goes on
const MOST_EXAMPLES = 3;

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
const shown = {}; // what each panel shows, so that going back and forth asks nothing twice
let underWay = "";
const tabs = new Tabs(byId("tabs"), () => refresh());
let typing = 0;
let watching = 0;

const questions = {
  translate: (signal) => explore("translate", { model: asked.model, text: sentence() }, signal),
  search: (signal) => explore("tree", { model: asked.model, text: sentence(), beam: panels.search.size }, signal),
  inside: (signal) =>
    explore("attention", { model: asked.model, text: sentence(), target: asked.target, off: asked.off }, signal),
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

/** Bring the open panel up to date. */
async function refresh() {
  const name = tabs.name;
  clearTimeout(watching);
  byId("writing").hidden = name === "training";
  const lacksText = name !== "training" && !sentence();
  byId("hint").hidden = !lacksText;
  byId(name).classList.toggle("waiting-for-text", lacksText);
  if (!asked.model || lacksText) return say("");
  const key = keyOf(name);
  if (underWay === name + key) return undefined;
  if (shown[name] === key && name !== "training") return say("");
  underWay = name + key;
  const slow = setTimeout(() => byId(name).setAttribute("aria-busy", "true"), 150);
  try {
    const view = await latest.ask(questions[name]);
    if (view === undefined) return undefined;
    say("");
    panels[name].show(view);
    shown[name] = key;
    if (name === "training" && view.running) watching = setTimeout(refresh, WATCH_MS);
  } catch (error) {
    say(error.message);
  } finally {
    clearTimeout(slow);
    if (underWay === name + key) underWay = "";
    byId(name).removeAttribute("aria-busy");
  }
  return undefined;
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
