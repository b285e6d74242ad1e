/* Keyboard navigation: a group is one stop for the Tab key, and arrow keys move within it. */

/**
 * Make the members of a group reachable by arrow keys. `columns` is the number of members in a row; in a plain list
 * (1), all four arrow keys move to the previous or next member.
 */
export function rove(group, selector, columns = 1) {
  const members = () => [...group.querySelectorAll(selector)];
  const entrance = group.querySelector(`${selector}[aria-pressed="true"], ${selector}[aria-selected="true"]`);
  for (const member of members()) member.tabIndex = -1;
  const first = entrance ?? members()[0];
  if (first) first.tabIndex = 0;
  group.onkeydown = (event) => {
    const all = members();
    const here = all.indexOf(document.activeElement);
    const there = here + (here < 0 ? 0 : movement(event.key, here, all.length, columns));
    if (there === here || there < 0 || there >= all.length) return;
    event.preventDefault();
    all[here].tabIndex = -1;
    all[there].tabIndex = 0;
    all[there].focus();
  };
}

function movement(key, here, count, columns) {
  const steps = {
    ArrowRight: 1,
    ArrowLeft: -1,
    ArrowDown: columns,
    ArrowUp: -columns,
    Home: -here,
    End: count - 1 - here,
  };
  return steps[key] ?? 0;
}
