/* Keeps only the answer to the latest of several requests. */

export class Latest {
  #controller = null;

  /** Abort the previous request, then send this one; undefined if a newer one was sent in the meantime. */
  async fetch(request) {
    this.#controller?.abort();
    const mine = (this.#controller = new AbortController());
    try {
      const answer = await request(mine.signal);
      return mine === this.#controller ? answer : undefined;
    } catch (error) {
      if (error.name === "AbortError" || mine !== this.#controller) return undefined;
      throw error;
    }
  }
}
