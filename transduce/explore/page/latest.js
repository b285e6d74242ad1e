/* Keeps only the answer to the latest of several requests. */

export class Latest {
  #controller = null;

  /** Give up what is under way, then ask; undefined if another question came in the meantime. */
  async ask(question) {
    this.#controller?.abort();
    const mine = (this.#controller = new AbortController());
    try {
      const answer = await question(mine.signal);
      return mine === this.#controller ? answer : undefined;
    } catch (error) {
      if (error.name === "AbortError" || mine !== this.#controller) return undefined;
      throw error;
    }
  }
}
