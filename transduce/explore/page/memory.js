/* Keeps the text over a reload, in this tab of the browser until it is closed. */

const KEY = "transduce.text";

/** A browser may forbid keeping things; then there is nothing to remember. */
export function remembered() {
  try {
    return sessionStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

export function remember(text) {
  try {
    sessionStorage.setItem(KEY, text);
  } catch {
    // the page works without it
  }
}
