/* The panel Transcribe: a recording from a file or the microphone, and its text. */

import { element, fill } from "./dom.js";
import { listening } from "./listening.js";
import { percent } from "./pieces.js";
import { transcribe } from "./server.js";
import { asWav } from "./wav.js";

const INSECURE =
  "To record here, open this page on localhost or over HTTPS: browsers allow the microphone nowhere else. You can choose a file.";
const LEGEND =
  "What the decoder attends to for each token (cross-attention, averaged over layers and heads), over the time of the segment. The row CTC shows when the encoder emits each token: the stronger the colour, the more probable.";

/** The panel; `say(message)` shows what went wrong. */
export class Transcribe {
  #recorder = null;

  constructor(container, say) {
    this.say = say;
    this.model = "";
    this.file = element("input", { type: "file", id: "recording", accept: ".wav,.flac,.ogg,.opus,.mp3" });
    this.file.addEventListener("change", () => this.#chosen());
    this.record = element("button", { type: "button", click: () => this.#toggle() }, "Record");
    this.container = container;
    this.state = element("p", { class: "hint", role: "status" });
    this.written = element("p", { class: "written", dir: "auto" });
    this.legend = element("p", { class: "hint", hidden: true }, LEGEND);
    this.segments = element("ol", { class: "segments" });
    const insecure = !window.isSecureContext || !navigator.mediaDevices;
    this.record.hidden = insecure;
    fill(
      container,
      element("p", { class: "controls" }, element("label", { for: "recording" }, "Recording"), this.file, this.record),
      insecure ? element("p", { class: "hint" }, INSECURE) : null,
      this.state,
      this.written,
      this.legend,
      this.segments,
    );
  }

  choose(model) {
    this.model = model;
    fill(this.written);
    fill(this.segments);
    this.legend.hidden = true;
  }

  #chosen() {
    const [file] = this.file.files;
    if (file) this.#send(file, file.name);
  }

  async #toggle() {
    if (this.#recorder) return this.#recorder.stop();
    try {
      const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
      this.#listen(stream);
    } catch {
      this.say("The browser did not allow the microphone.");
    }
    return undefined;
  }

  /** Record until the button is pressed again; the server reads no WebM, so the sound is sent as WAV. */
  #listen(stream) {
    const parts = [];
    const recorder = (this.#recorder = new MediaRecorder(stream));
    recorder.addEventListener("dataavailable", ({ data }) => parts.push(data));
    recorder.addEventListener("stop", async () => {
      this.#recorder = null;
      for (const track of stream.getTracks()) track.stop();
      fill(this.record, "Record");
      const wav = await asWav(await new Blob(parts).arrayBuffer()).catch(() => null);
      if (wav) this.#send(wav, "your recording");
      else this.say("Nothing was recorded.");
    });
    recorder.start();
    fill(this.record, "Stop recording");
    fill(this.state, "Recording …");
  }

  async #send(content, name) {
    this.say("");
    fill(this.state, `Transcribing ${name} …`);
    try {
      this.#show(await this.#transcribed(content));
    } catch (error) {
      fill(this.state);
      this.say(error.message);
    }
  }

  /** With attention if the recording is short enough, else without. */
  async #transcribed(content) {
    try {
      return await transcribe(this.model, content, true);
    } catch (error) {
      if (!error.message.includes("attention is shown")) throw error;
      return transcribe(this.model, content, false);
    }
  }

  #show(answer) {
    fill(this.state, `${answer.seconds.toFixed(1)} s`);
    fill(this.written, answer.text || "No speech was heard.");
    this.legend.hidden = !answer.text;
    fill(this.segments, ...answer.segments.map((segment) => this.#segment(segment)));
  }

  #segment(segment) {
    const { begin, end, text, confidence, attention } = segment;
    const times = `${begin.toFixed(1)} to ${end.toFixed(1)} s`;
    const figures = text ? `${times}, confidence ${percent(confidence)}` : `${times}, silence`;
    const picture = text && attention ? listening(segment, this.container.clientWidth - 40) : null;
    return element("li", {}, text, element("p", { class: "figures" }, figures), picture);
  }
}
