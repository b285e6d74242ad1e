/* Finds the words that differ between two texts: those outside their longest common subsequence. */

/** The words of both texts, as [first, second], each marked as changed or not by the same alignment. */
export function compared(one, other) {
  const words = one.split(/\s+/).filter(Boolean);
  const others = other.split(/\s+/).filter(Boolean);
  const common = commonLengths(words, others);
  const [ofOne, ofOther] = [[], []];
  let [here, there] = [0, 0];
  while (here < words.length || there < others.length) {
    if (here < words.length && there < others.length && words[here] === others[there]) {
      ofOne.push({ word: words[here++], changed: false });
      ofOther.push({ word: others[there++], changed: false });
    } else if (there === others.length || (here < words.length && common[here + 1][there] >= common[here][there + 1])) {
      ofOne.push({ word: words[here++], changed: true });
    } else {
      ofOther.push({ word: others[there++], changed: true });
    }
  }
  return [ofOne, ofOther];
}

/** The length of the longest common subsequence of the two texts from each pair of positions on. */
function commonLengths(words, others) {
  const table = Array.from({ length: words.length + 1 }, () => new Array(others.length + 1).fill(0));
  for (let here = words.length - 1; here >= 0; here--) {
    for (let there = others.length - 1; there >= 0; there--) {
      const same = words[here] === others[there];
      table[here][there] = same
        ? 1 + table[here + 1][there + 1]
        : Math.max(table[here + 1][there], table[here][there + 1]);
    }
  }
  return table;
}
