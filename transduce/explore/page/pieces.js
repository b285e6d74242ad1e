/* Turns the tokens of a vocabulary into readable labels. */

const SPACE = "\u2581"; // sentencepiece's symbol for a space before a token
const NAMES = { __proto__: null, "<pad>": "start", "</s>": "end" };
const BYTE = /^<0x([0-9A-F]{2})>$/; // one byte of a character that is not in the vocabulary
const PUNCTUATION = /^\p{P}+$/u;

export function startsWord(piece) {
  return piece.startsWith(SPACE);
}

export function isMark(piece) {
  return piece in NAMES;
}

/** A token in running text. */
export function bare(piece) {
  return NAMES[piece] ?? byteName(piece) ?? piece.replaceAll(SPACE, " ").trim();
}

/** The text of a sequence of tokens, without start and end tokens. */
export function runningText(pieces) {
  const written = pieces.filter((piece) => !isMark(piece));
  return written
    .map((piece) => byteName(piece) ?? piece.replaceAll(SPACE, " "))
    .join("")
    .trim();
}

function byteName(piece) {
  const found = BYTE.exec(piece);
  if (!found) return null;
  const code = Number.parseInt(found[1], 16);
  return code > 0x20 && code < 0x7f ? String.fromCharCode(code) : `byte ${found[1]}`;
}

/**
 * A function that labels single tokens. If any of these tokens marks the start of a word, tokens that continue a word
 * get a leading dot; tokens that are letters or sounds need none.
 */
export function labeller(pieces) {
  const marked = pieces.some(startsWord);
  return (piece) => {
    if (isMark(piece)) return `\u2039${NAMES[piece]}\u203a`;
    if (piece.trim() === "" || piece === SPACE) return "\u2423";
    return !marked || startsWord(piece) || PUNCTUATION.test(piece) ? bare(piece) : `\u00b7${bare(piece)}`;
  };
}

export function labels(pieces) {
  return pieces.map(labeller(pieces));
}

export function percent(probability) {
  if (probability > 0 && probability < 0.001) return "< 0.1\u202f%";
  const digits = probability < 0.1 ? 1 : 0;
  return `${(100 * probability).toFixed(digits)}\u202f%`;
}

/** The name of a language code in the reader's language; other strings are returned unchanged. */
export function languageName(code) {
  try {
    return new Intl.DisplayNames([navigator.language], { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}
