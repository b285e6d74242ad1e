/* Tabs that switch panels; the URL's fragment names the open one. */

import { addressed } from "./address.js";
import { rove } from "./keyboard.js";

const SHOWN = '[role="tab"]:not([hidden])';

export class Tabs {
  constructor(list, onopen) {
    this.list = list;
    this.onopen = onopen;
    this.tabs = [...list.querySelectorAll('[role="tab"]')];
    for (const tab of this.tabs) tab.addEventListener("click", () => this.open(nameOf(tab)));
    addEventListener("hashchange", () => {
      const { name } = addressed();
      if (this.#has(name)) this.open(name); // other fragments are links within the page
    });
  }

  /** Show only the tabs of these names. */
  only(names) {
    for (const tab of this.tabs) tab.hidden = !names.includes(nameOf(tab));
    if (this.#has(this.name)) rove(this.list, SHOWN);
    else this.open(names[0]);
  }

  open(name) {
    this.name = this.#has(name) ? name : nameOf(this.tabs.find((tab) => !tab.hidden));
    for (const tab of this.tabs) {
      const isOpen = nameOf(tab) === this.name;
      tab.setAttribute("aria-selected", String(isOpen));
      document.getElementById(nameOf(tab)).hidden = !isOpen;
    }
    rove(this.list, SHOWN);
    if (location.hash.slice(1) !== this.name) history.replaceState(null, "", `#${this.name}`);
    this.onopen(this.name);
  }

  #has(name) {
    return this.tabs.some((tab) => !tab.hidden && nameOf(tab) === name);
  }
}

function nameOf(tab) {
  return tab.getAttribute("aria-controls");
}
