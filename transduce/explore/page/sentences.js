/* Detects texts of several sentences, with the same rules as the splitter (transduce/documents/splitting.py). */

const END = /(?<![.!?…])[.!?…]+["'”’»)\]]*(?=\s)|(?<![。！？])[。！？]+["'”’」』）]*|[\r\n]+/gu;
const SHORT = /^(?:\d{1,2}|[\p{L}\p{N}_]|(?:[\p{L}\p{N}_]\.)+[\p{L}\p{N}_])$/u;
const ABBREVIATIONS = new Set(
  "mr mrs ms dr prof st jr sr vs etc cf fig no nr vol pp ca approx bzw usw evtl ggf inkl str hr fr mme mlle sra".split(
    " ",
  ),
);

export function isSeveral(text) {
  const ends = [...text.matchAll(END)].filter((end) => !goesOn(text, end)).map((end) => end.index + end[0].length);
  const parts = [...ends, text.length].map((end, number) => text.slice(ends[number - 1] ?? 0, end));
  return parts.filter((part) => /[\p{L}\p{N}]/u.test(part)).length > 1;
}

/** Whether a lowercase letter follows, or the full stop belongs to an abbreviation, an initial or an ordinal. */
function goesOn(text, end) {
  if (/^[\r\n]/.test(end[0])) return false;
  if (/^\s*\p{Ll}/u.test(text.slice(end.index + end[0].length))) return true;
  if (!end[0].startsWith(".") || end[0].startsWith("..")) return false;
  const word = text.slice(Math.max(0, end.index - 16), end.index).split(/[\s("'„“]/).at(-1);
  return ABBREVIATIONS.has(word.toLowerCase()) || SHORT.test(word);
}
