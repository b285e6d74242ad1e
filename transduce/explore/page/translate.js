/* The panel Translate: translates when typing stops, and shows the best output above the others. */

import { element, fill } from "./dom.js";
import { percent } from "./pieces.js";
import { Popover, shadedText } from "./shaded.js";

const DOUBT = [
  "The stronger the colour of a token, the less certain the model was.",
  "Point at a token or tap it to see the alternatives.",
].join(" ");
const RANKING = [
  "Ranked by score: the log-probability, normalised by length",
  "so that short translations are not preferred.",
].join(" ");

/** The panel; `lookInside(text)` is called with the output whose attention is to be shown. */
export class Translate {
  constructor(container, lookInside) {
    this.container = container;
    this.lookInside = lookInside;
    this.popover = new Popover();
    this.best = element("div", { class: "best" });
    this.spoken = element("p", { class: "unseen", role: "status" });
    this.others = element("ol", { class: "others", start: "2" });
    this.notes = element("p", { class: "hint" });
    this.legend = element(
      "p",
      { class: "legend" },
      element("span", { class: "doubts", "aria-hidden": "true" }),
      element("span", { class: "hint" }, DOUBT),
    );
    this.heading = element("h2", {}, "Other translations");
    this.ranking = element("p", { class: "hint" }, RANKING);
    fill(container, this.spoken, this.best, this.legend, this.notes, this.heading, this.others, this.ranking);
  }

  show(view) {
    this.popover.hide();
    const [best, ...others] = view.outputs;
    fill(this.spoken, best?.text ?? "");
    fill(
      this.best,
      best ? shadedText(best, this.popover) : element("p", { class: "hint" }, "Nothing to translate."),
      best ? this.#figures(best, null) : null,
    );
    fill(
      this.others,
      ...others.map((output) =>
        element("li", {}, shadedText(output, this.popover), this.#figures(output, view.outputs[0])),
      ),
    );
    this.heading.hidden = this.ranking.hidden = others.length === 0;
    this.legend.hidden = !best;
    fill(this.notes, notes(view));
  }

  #figures(output, best) {
    const probability = best
      ? `${relative(output, best)} as probable as the first`
      : `probability of the whole sentence ${percent(Math.exp(output.log_probability))}`;
    return element(
      "p",
      { class: "figures" },
      element("span", {}, `score ${output.score.toFixed(3)}, ${probability}`),
      element("button", { type: "button", class: "link", click: () => this.lookInside(output.text) }, "Show attention"),
    );
  }
}

function relative(output, best) {
  const ratio = Math.exp(output.log_probability - best.log_probability);
  return ratio >= 1 ? `${ratio.toFixed(1)} times` : percent(ratio);
}

function notes(view) {
  const said = [];
  if (view.cut) said.push(`The sentence is too long for the model: its last ${view.cut} tokens were ignored.`);
  if (view.unknown) said.push(`${view.unknown} characters or symbols are not in the model\u2019s vocabulary.`);
  return said.join(" ");
}
