/* Which words of one text are not in another: the longest common subsequence of words. */

/** The words of `text`, each with whether `other` lacks it at that place. */
export function changedWords(text, other) {
  const words = text.split(/\s+/).filter(Boolean);
  const others = other.split(/\s+/).filter(Boolean);
  const common = commonLengths(words, others);
  const found = [];
  let there = 0;
  words.forEach((word, here) => {
    while (there < others.length && word !== others[there] && common[here][there + 1] === common[here][there]) there++;
    const same = there < others.length && word === others[there] && common[here][there] > common[here + 1][there];
    if (same) there++;
    found.push({ word, changed: !same });
  });
  return found;
}

/** How many words the rests from each pair of places on have in common. */
function commonLengths(words, others) {
  const table = Array.from({ length: words.length + 1 }, () => new Array(others.length + 1).fill(0));
  for (let here = words.length - 1; here >= 0; here--) {
    for (let there = others.length - 1; there >= 0; there--) {
      const same = words[here] === others[there];
      table[here][there] = same ? 1 + table[here + 1][there + 1] : Math.max(table[here + 1][there], table[here][there + 1]);
    }
  }
  return table;
}
