/* How the pieces of a vocabulary are displayed. */

const SPACE = "\u2581"; // sentencepiece's mark of a space before a piece
const NAMES = { __proto__: null, "<pad>": "start", "</s>": "end" };
const BYTE = /^<0x([0-9A-F]{2})>$/; // a piece of a character that the vocabulary does not have
const PUNCTUATION = /^\p{P}+$/u;

export function startsWord(piece) {
  return piece.startsWith(SPACE);
}

export function isMark(piece) {
  return piece in NAMES;
}

/** The piece in running text. */
export function bare(piece) {
  return NAMES[piece] ?? byteName(piece) ?? piece.replaceAll(SPACE, " ").trim();
}

/** Pieces as the text they make, marks left out. */
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
 * How pieces of these kinds are written when each stands by itself. Where words begin with a mark, a piece that goes on
 * within a word is given a dot; where nothing has a mark (letters, sounds), nothing needs one.
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

/** "en" as the reader's language calls it; anything else as it is. */
export function languageName(code) {
  try {
    return new Intl.DisplayNames([navigator.language], { type: "language" }).of(code) ?? code;
  } catch {
    return code;
  }
}
