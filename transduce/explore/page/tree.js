/* The panel Search: the beam search as a tree to step through. */

import { drawBranches, OUTCOMES } from "./boxes.js";
import { branches } from "./branches.js";
import { element, fill } from "./dom.js";
import { isMark, labeller, percent, runningText } from "./pieces.js";

const PLAY_MS = 450;
const BEAMS = [2, 3, 4, 6, 8, 12];
const WHAT_IT_DOES = [
  "At each step, beam search ranks the most probable continuations, keeps as many as the beam size allows,",
  "and sets finished translations aside. Step back to see the candidates it considered.",
].join(" ");

export class Tree {
  constructor(container, changeBeam) {
    this.step = 0;
    this.playing = null;
    this.drawing = element("div", {
      class: "scrolling tree",
      tabindex: "0",
      role: "region",
      "aria-label": "The search tree",
    });
    this.status = element("p", { class: "readout", role: "status" });
    this.table = element("tbody");
    this.slider = element("input", {
      type: "range",
      min: "0",
      "aria-label": "Step of the search",
      input: () => this.#go(Number(this.slider.value)),
    });
    this.play = element("button", { type: "button", click: () => this.#togglePlay() }, "Play");
    this.beam = element(
      "select",
      { id: "beam", change: () => changeBeam(Number(this.beam.value)) },
      ...BEAMS.map((size) => element("option", { value: size, selected: size === 4 }, String(size))),
    );
    this.outputs = element("ol", { class: "found" });
    fill(container, ...this.#layout());
  }

  get size() {
    return Number(this.beam.value);
  }

  show(view) {
    this.#stop();
    this.view = named(view);
    this.slider.max = String(view.steps.length - 1);
    this.#go((view.outputs[0]?.path.length ?? view.steps.length) - 1); // the step at which the best output ended
    fill(
      this.outputs,
      ...view.outputs.map(({ text, score }) =>
        element(
          "li",
          {},
          element("span", { dir: "auto" }, text),
          element("span", { class: "score" }, score.toFixed(3)),
        ),
      ),
    );
  }

  #layout() {
    const button = (text, name, move) =>
      element("button", { type: "button", "aria-label": name, click: () => this.#go(move()) }, text);
    const headings = ["token", "probability", "total log-probability", "score", "outcome"];
    return [
      element("p", { class: "hint" }, WHAT_IT_DOES),
      element(
        "div",
        { class: "toolbar" },
        element(
          "div",
          { class: "stepping" },
          button("\u2190", "Previous step", () => this.step - 1),
          this.slider,
          button("\u2192", "Next step", () => this.step + 1),
          this.play,
        ),
        element("label", {}, "Beam size ", this.beam),
      ),
      this.status,
      this.drawing,
      outcomes(),
      element("h2", {}, "Candidates at this step"),
      element(
        "div",
        { class: "scrolling" },
        element(
          "table",
          { class: "ranked" },
          element("thead", {}, element("tr", {}, ...headings.map((text) => element("th", { scope: "col" }, text)))),
          this.table,
        ),
      ),
      element("h2", {}, "Translations found, by score"),
      this.outputs,
    ];
  }

  #go(step) {
    this.step = Math.min(this.view.steps.length - 1, Math.max(0, step));
    this.slider.value = String(this.step);
    this.#draw();
  }

  #togglePlay() {
    if (this.playing) return this.#stop();
    if (this.step === this.view.steps.length - 1) this.#go(0);
    fill(this.play, "Pause");
    this.playing = setInterval(() => {
      if (this.step < this.view.steps.length - 1) this.#go(this.step + 1);
      else this.#stop();
    }, PLAY_MS);
    return undefined;
  }

  #stop() {
    clearInterval(this.playing);
    this.playing = null;
    fill(this.play, "Play");
  }

  #draw() {
    const tree = branches(this.view, this.step);
    fill(this.drawing, drawBranches(tree));
    this.drawing.scrollLeft = this.drawing.scrollWidth;
    const isLast = this.step === this.view.steps.length - 1;
    const { candidates, attainable, worst_kept: worst } = this.view.steps[this.step];
    fill(this.table, ...candidates.map((candidate) => rankedRow(candidate, isLast, tree.byId)));
    fill(
      this.status,
      `Step ${this.step + 1} of ${this.view.steps.length}: ${summary(candidates, attainable, worst, isLast)}`,
    );
  }
}

/** The view with a readable name for the token of every candidate. */
function named(view) {
  const label = labeller(view.steps.flatMap(({ candidates }) => candidates.map(({ token }) => token)));
  const name = (candidate) => ({ ...candidate, name: label(candidate.token) });
  return { ...view, steps: view.steps.map((step) => ({ ...step, candidates: step.candidates.map(name) })) };
}

function outcomes() {
  const outcome = (name, text) => element("li", {}, element("span", { class: name, "aria-hidden": "true" }), text);
  return element(
    "ul",
    { class: "outcomes" },
    outcome("wins", "part of the best translation"),
    outcome("ended", "finished translation"),
    outcome("dropped", "dropped, at this step or later"),
    outcome("probability", "probability of the token"),
  );
}

function summary(candidates, attainable, worst, isLast) {
  const count = (state) => candidates.filter((one) => one.state === state).length;
  const ended = count("ended") ? `, ${count("ended")} finished` : "";
  const end = isLast ? " The search stops: no candidate can still beat the translations found." : "";
  const margin =
    worst === null || attainable === null
      ? ""
      : ` Best attainable score ${attainable.toFixed(3)}, worst finished translation in the beam ${worst.toFixed(3)}.`;
  const kept = `${count("kept")} ${isLast ? "could be extended" : "kept"}`;
  return `${candidates.length} candidates, ${kept}${ended}.${margin}${end}`;
}

/** The translation that an end token finishes; without it, the rows of end tokens would look the same. */
function endedText(candidate, byId) {
  if (!isMark(candidate.token)) return null;
  const pieces = [];
  for (let node = byId.get(candidate.parent); node?.token; node = byId.get(node.parent)) pieces.unshift(node.token);
  return element("span", { class: "so-far", dir: "auto" }, runningText(pieces));
}

function rankedRow(candidate, isLast, byId) {
  const outcome = isLast && candidate.state === "kept" ? "could be extended" : OUTCOMES[candidate.state];
  const cells = [
    candidate.name,
    percent(Math.exp(candidate.log_probability)),
    candidate.total.toFixed(3),
    candidate.score.toFixed(3),
    outcome,
  ];
  const row = element("tr", { class: candidate.state }, ...cells.map((text) => element("td", {}, text)));
  row.lastChild.append(endedText(candidate, byId) ?? "");
  return row;
}
