/* The training of a run: curves, translations at each validation, the model card; updated while it runs. */

import { chart } from "./curves.js";
import { element, fill } from "./dom.js";
import { markdown } from "./markdown.js";

export class Training {
  constructor(container) {
    this.state = element("p", { class: "run-state", role: "status" });
    this.charts = element("div", { class: "charts" });
    this.samples = element("div");
    this.slider = element("input", {
      type: "range",
      min: "0",
      "aria-label": "Validation",
      input: () => this.#drawSamples(),
    });
    this.when = element("span", { class: "readout" });
    this.card = element("div", { class: "card" });
    this.learning = element(
      "section",
      { class: "below" },
      element("h2", {}, "Sample translations during training"),
      element("div", { class: "stepping wide" }, this.slider, this.when),
      this.samples,
    );
    fill(
      container,
      this.state,
      this.charts,
      this.learning,
      element("section", { class: "below" }, element("h2", {}, "Model card"), this.card),
    );
  }

  show(view) {
    const atNewest = !this.view || this.slider.value === this.slider.max;
    const sameCard = this.view?.card === view.card;
    this.view = view;
    fill(this.state, stateOf(view));
    this.state.classList.toggle("running", view.running);
    fill(this.charts, ...charts(view));
    this.slider.max = String(Math.max(0, view.validations.length - 1));
    if (atNewest) this.slider.value = this.slider.max;
    this.learning.hidden = view.validations.length === 0;
    this.#drawSamples();
    if (!sameCard)
      fill(
        this.card,
        ...(view.card
          ? markdown(view.card)
          : [element("p", { class: "hint" }, "The model card is written when training ends.")]),
      );
  }

  #drawSamples() {
    const validation = this.view.validations[Number(this.slider.value)];
    if (!validation) return;
    const scores = Object.entries(validation.scores).map(([name, value]) => `${name} ${value?.toFixed(1)}`);
    fill(this.when, `Step ${validation.step.toLocaleString()}: ${scores.join(", ")}`);
    fill(this.samples, ...validation.samples.map(sample));
  }
}

function stateOf(view) {
  const last = lastStep(view);
  if (!last) return view.running ? "Training has started." : "This folder has no training log.";
  if (!view.running) return `Training is not running; the log ends at step ${last.toLocaleString()}.`;
  const speed = Math.round(view.steps.at(-1)?.tokens_per_second ?? 0);
  return `Training now: step ${last.toLocaleString()}, ${speed.toLocaleString()} tokens/s.`;
}

/** The last step of any kind of event: a run may end with a validation. */
function lastStep({ steps, validations, averaged }) {
  return Math.max(...[steps, validations, averaged].map((events) => events.at(-1)?.step ?? 0));
}

function sample({ source, output, reference }) {
  const row = (name, text, kind) =>
    element("div", { class: kind }, element("dt", {}, name), element("dd", { dir: "auto" }, text));
  return element(
    "dl",
    { class: "sample" },
    row("source", source, ""),
    row("model", output, "output"),
    row("reference", reference, ""),
  );
}

function charts(view) {
  const of = (events, read) => events.map((event) => [event.step, read(event) ?? null]);
  const names = Object.keys(view.validations[0]?.scores ?? {});
  const number = (digits) => (value) => value.toFixed(digits);
  return [
    chart(
      "Loss per target token",
      [
        { name: "training", points: of(view.steps, (event) => event.loss) },
        { name: "validation", points: of(view.validations, (event) => event.loss), dots: true },
      ],
      number(2),
    ),
    chart(
      "Validation scores",
      names.map((name) => ({ name, points: of(view.validations, (event) => event.scores[name]), dots: true })),
      number(1),
    ),
    chart("Learning rate", [{ name: "rate", points: of(view.steps, (event) => event.learning_rate) }], (value) =>
      value.toPrecision(2),
    ),
    chart(
      "Speed",
      [{ name: "tokens per second", points: of(view.steps, (event) => event.tokens_per_second) }],
      (value) => Math.round(value).toLocaleString(),
    ),
  ];
}
