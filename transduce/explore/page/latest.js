/* Of several questions asked in a row only the answer to the last one counts. */

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
