/* Starts the page: holds the selected model, sentence and panel, and sends the requests of the open panel. */

import { addressed } from "./address.js";
import { byId, element, fill } from "./dom.js";
import { Generate } from "./generate.js";
import { Inside } from "./inside.js";
import { Latest } from "./latest.js";
import { remember, remembered } from "./memory.js";
import { languageName } from "./pieces.js";
import { saveAsPage, saveAsPicture } from "./saving.js";
import { isSeveral } from "./sentences.js";
import { explore, models, training } from "./server.js";
import { Tabs } from "./tabs.js";
import { Training } from "./training.js";
import { Transcribe } from "./transcribe.js";
import { Translate } from "./translate.js";
import { Tree } from "./tree.js";

const TYPING_MS = 350; // a pause in typing after which the text is translated
const WATCH_MS = 2500; // between updates of a running training
const MOST_EXAMPLES = 3;
const INSTRUCTIONS = {
  translate: "Enter a sentence above. The translation appears when you stop typing.",
  search: "Enter a sentence above to follow the beam search step by step.",
  inside: "Enter a sentence above to see what each attention head attends to.",
  training: "",
};
const PANELS = {
  translation: ["translate", "search", "inside", "training"],
  "language model": ["generate", "training"],
  speech: ["transcribe", "training"],
};
const SEVERAL =
  "This page shows one sentence at a time and treats this text as one. The API splits texts into sentences.";

const text = byId("text");
const latest = new Latest();
const selected = { model: "", target: null, off: [] };
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
const working = { generate: new Generate(byId("generate"), say), transcribe: new Transcribe(byId("transcribe"), say) };
const shown = {}; // the key of what each panel shows, so that switching panels repeats no request
const shownOf = {}; // its model and sentence
let underWay = "";
const tabs = new Tabs(byId("tabs"), () => refresh());
let typing = 0;
let watching = 0;

const requests = {
  translate: (signal) => explore("translate", { model: selected.model, text: sentence() }, signal),
  search: (signal) => explore("tree", { model: selected.model, text: sentence(), beam: panels.search.size }, signal),
  inside: (signal) =>
    explore(
      "attention",
      { model: selected.model, text: sentence(), target_text: selected.target, off: selected.off },
      signal,
    ),
  training: (signal) => training(selected.model, signal),
};

function sentence() {
  return text.value.trim();
}

function keyOf(name) {
  const key = {
    translate: [sentence()],
    search: [sentence(), panels.search.size],
    inside: [sentence(), selected.target, selected.off],
    training: [],
  };
  return JSON.stringify([selected.model, ...key[name]]);
}

function subjectOf(name) {
  return JSON.stringify([selected.model, name === "training" ? "" : sentence()]);
}

/** Update the open panel. */
async function refresh() {
  const name = tabs.name;
  clearTimeout(watching);
  if (working[name]) return showWorking();
  byId("writing").hidden = name === "training";
  const lacksText = name !== "training" && !sentence();
  byId("hint").hidden = !lacksText;
  fill(byId("instruction"), INSTRUCTIONS[name]);
  warnOfSeveral();
  if (lacksText) byId(name).classList.add("nothing-to-show");
  if (!selected.model || lacksText) return say("");
  const [key, subject] = [keyOf(name), subjectOf(name)];
  if (underWay === name + key) return undefined;
  if (shown[name] === key && name !== "training") {
    byId(name).classList.remove("nothing-to-show");
    return say("");
  }
  underWay = name + key;
  const slow = setTimeout(() => byId(name).setAttribute("aria-busy", "true"), 150);
  try {
    const view = await latest.fetch(requests[name]);
    if (view === undefined) return undefined;
    say("");
    byId(name).classList.remove("nothing-to-show");
    panels[name].show(view);
    shown[name] = key;
    shownOf[name] = subject;
    if (name === "training" && view.running) watching = setTimeout(refresh, WATCH_MS);
  } catch (error) {
    say(error.message);
    byId(name).classList.toggle("nothing-to-show", shownOf[name] !== subject); // an old view is no answer
  } finally {
    clearTimeout(slow);
    if (underWay === name + key) underWay = "";
    byId(name).removeAttribute("aria-busy");
  }
  return undefined;
}

/** A panel that sends its own requests, when it is told to. */
function showWorking() {
  for (const id of ["writing", "hint"]) byId(id).hidden = true;
  say("");
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
  selected.target = target;
  selected.off = [];
  tabs.open("inside");
}

/** The model translates again without these heads, so an earlier choice of a target no longer applies. */
function switchOff(heads) {
  selected.off = heads;
  selected.target = null;
  refresh();
}

function write(sentenceToShow) {
  text.value = sentenceToShow;
  begin();
}

function begin() {
  remember(text.value);
  selected.target = null;
  selected.off = [];
  refresh();
}

async function chooseModel(model) {
  selected.model = model.name;
  for (const panel of Object.values(working)) panel.choose(model.name);
  tabs.only(PANELS[model.kind ?? "translation"]);
  const pair = [model.source, model.target].filter(Boolean).map(languageName);
  fill(byId("languages"), pair.length === 2 ? `${pair[0]} \u2192 ${pair[1]}` : (model.description ?? ""));
  text.placeholder = pair.length === 2 ? `Enter text in ${pair[0]}` : "Enter text";
  text.lang = model.source ?? "";
  begin();
  showExamples(await training(model.name).catch(() => null));
}

/** Example sentences: the samples of the last validation. */
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
  const linked = addressed();
  text.value = linked.text || text.value || remembered();
  tabs.open(linked.name);
  try {
    const found = await models();
    fill(byId("model"), ...found.map(({ name }) => element("option", { value: name }, name)));
    byId("model").addEventListener("change", (event) => chooseModel(found[event.target.selectedIndex]));
    byId("choose-model").hidden = found.length < 2;
    const first = found.find(({ name }) => name === linked.model) ?? found[0];
    if (first) byId("model").value = first.name;
    if (first) await chooseModel(first);
    else say("The server has no models.");
  } catch (error) {
    say(error.message);
  }
}

start();
