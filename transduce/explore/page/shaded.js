/* An output as running text; the less certain the model was of a token, the stronger its shade. */

import { element } from "./dom.js";
import { rove } from "./keyboard.js";
import { bare, isMark, labeller, percent, startsWord } from "./pieces.js";

/** The tokens as buttons in a line; `popover` shows the alternatives of the selected one. */
export function shadedText(output, popover) {
  const label = labeller(
    output.tokens.flatMap(({ token, alternatives }) => [token, ...alternatives.map((one) => one.token)]),
  );
  const children = output.tokens.flatMap((token, position) => {
    const space = position > 0 && startsWord(token.token) ? [" "] : [];
    return [
      ...space,
      tokenButton(
        token,
        (button) => popover.show(button, token, label),
        () => popover.hide(),
      ),
    ];
  });
  const line = element("p", { class: "shaded", dir: "auto", role: "group", "aria-label": output.text }, ...children);
  rove(line, "button");
  return line;
}

function tokenButton(token, look, leave) {
  const probability = Math.exp(token.log_probability);
  const button = element(
    "button",
    {
      type: "button",
      class: isMark(token.token) ? "piece mark" : "piece",
      "aria-label": description(token),
      pointerenter: () => look(button),
      pointerleave: leave,
      focus: () => look(button),
      blur: leave,
    },
    bare(token.token) || "\u2423",
  );
  button.style.setProperty("--doubt", (1 - probability).toFixed(3));
  return button;
}

function description(token) {
  const others = token.alternatives.map((other) => `${bare(other.token)} ${percent(Math.exp(other.log_probability))}`);
  const instead = others.length ? `; or ${others.join(", ")}` : "";
  return `${bare(token.token)}, ${percent(Math.exp(token.log_probability))}${instead}`;
}

/** The box of alternatives beside a token. Screen readers read the same from the buttons' labels. */
export class Popover {
  constructor() {
    this.node = element("div", { class: "popover", hidden: true, "aria-hidden": "true" });
    document.body.append(this.node);
    addEventListener("keydown", (event) => event.key === "Escape" && this.hide());
    addEventListener("scroll", () => this.hide(), { passive: true, capture: true });
  }

  show(button, token, label) {
    const rows = [token, ...token.alternatives].map((one, rank) => popoverRow(one, label(one.token), rank === 0));
    this.node.replaceChildren(...rows);
    this.node.hidden = false;
    const anchor = button.getBoundingClientRect();
    const box = this.node.getBoundingClientRect();
    const below = anchor.bottom + 6 + box.height < innerHeight;
    const rightmost = document.documentElement.clientWidth - box.width - 8;
    this.node.style.left = `${Math.max(8, Math.min(anchor.left, rightmost))}px`;
    this.node.style.top = `${below ? anchor.bottom + 6 : anchor.top - box.height - 6}px`;
  }

  hide() {
    this.node.hidden = true;
  }
}

function popoverRow(one, name, isTaken) {
  const probability = Math.exp(one.log_probability);
  const bar = element("span", { class: "bar" });
  bar.style.setProperty("--share", probability);
  return element(
    "div",
    { class: isTaken ? "taken" : "" },
    element("span", {}, name),
    bar,
    element("span", {}, percent(probability)),
  );
}
