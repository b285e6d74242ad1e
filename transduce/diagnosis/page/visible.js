/* Text with its invisible characters shown by their code points: they are what some findings are about. */

import { element } from "./dom.js";

const INVISIBLE = /([\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffd])/u;

/** The children of an element that shows this text. */
export function visible(text) {
  if (!text) return [element("span", { class: "codepoint" }, "empty")];
  return text.split(INVISIBLE).filter((part) => part).map((part) => (INVISIBLE.test(part) ? named(part) : part));
}

function named(character) {
  const code = character.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
  return element("span", { class: "codepoint" }, `U+${code}`);
}
