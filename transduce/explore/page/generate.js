/* The panel Generate: continues a prompt with a language model, and shows the text while it is written. */

import { element, fill } from "./dom.js";
import { generate } from "./server.js";

const MOST_TOKENS = 1000;

/** The panel; `say(message)` shows what went wrong. */
export class Generate {
  #controller = null;

  constructor(container, say) {
    this.say = say;
    this.model = "";
    this.prompt = element("textarea", { id: "prompt", rows: "3", dir: "auto", spellcheck: "false" });
    this.sampling = element("input", { type: "checkbox", id: "sampling", checked: true });
    this.temperature = number("temperature", "0.8", "0.1", "5", "0.1");
    this.tokens = number("max-tokens", "200", "1", MOST_TOKENS, "1");
    this.start = element("button", { type: "button", click: () => this.#begin() }, "Generate");
    this.stop = element("button", { type: "button", hidden: true, click: () => this.#stop() }, "Stop");
    this.written = element("p", { class: "written", dir: "auto", "aria-live": "polite" });
    this.notes = element("p", { class: "hint" });
    const choices = element(
      "p",
      { class: "controls" },
      element("label", {}, this.sampling, " Sample"),
      element("label", {}, "Temperature ", this.temperature),
      element("label", {}, "Tokens ", this.tokens),
      this.start,
      this.stop,
    );
    fill(container, element("label", { for: "prompt" }, "Prompt"), this.prompt, choices, this.written, this.notes);
  }

  /** Use another model; what is being written by the last one ends. */
  choose(model) {
    this.#stop();
    this.model = model;
    fill(this.written);
    fill(this.notes);
  }

  #stop() {
    this.#controller?.abort();
  }

  #begin() {
    this.#stop();
    this.#write((this.#controller = new AbortController()));
  }

  async #write(mine) {
    this.#working(true);
    this.say("");
    const shown = document.createTextNode("");
    fill(this.written, element("span", { class: "prompt" }, this.prompt.value), shown);
    fill(this.notes);
    try {
      const last = await generate(this.#fields(), mine.signal, (part) => shown.appendData(part.text));
      fill(this.notes, notes(last));
    } catch (error) {
      if (error.name !== "AbortError") this.say(error.message);
    } finally {
      if (mine === this.#controller) this.#working(false);
    }
  }

  #working(isWorking) {
    this.start.hidden = isWorking;
    this.stop.hidden = !isWorking;
  }

  #fields() {
    const sampling = this.sampling.checked;
    const chosen = { sampling, temperature: Number(this.temperature.value), seed: Math.floor(Math.random() * 2 ** 31) };
    const fields = { model: this.model, prompt: this.prompt.value, max_tokens: Number(this.tokens.value) };
    return { ...fields, ...(sampling ? chosen : {}) };
  }
}

function number(id, value, min, max, step) {
  return element("input", { type: "number", id, value, min, max, step });
}

function notes(last) {
  const [{ tokens, finish_reason: reason }] = last.texts;
  const ended = reason === "stop" ? "The document ended" : "The text reached its maximum length";
  const cut = last.cut ? ` The model did not see the first ${last.cut} tokens of the prompt.` : "";
  return `${ended} after ${tokens} tokens.${cut}`;
}
