/* Reads the page's address: its fragment names a panel, a text and a model, as in #inside?text=a%20cat&model=en-de. */

/** What the fragment says. It never leaves the browser, so a server's log does not have the text. */
export function addressed() {
  const [name, rest = ""] = location.hash.slice(1).split("?");
  const given = new URLSearchParams(rest);
  return { name, text: given.get("text") ?? "", model: given.get("model") ?? "" };
}
