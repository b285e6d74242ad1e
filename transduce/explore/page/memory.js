/* Keeps the text across reloads, until the browser tab is closed. */

const KEY = "transduce.text";

/** The stored text; empty if the browser forbids storage. */
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
