/* Tabs that switch panels; the URL's fragment names the open one. */

import { addressed } from "./address.js";
import { rove } from "./keyboard.js";

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

  open(name) {
    this.name = this.#has(name) ? name : nameOf(this.tabs[0]);
    for (const tab of this.tabs) {
      const isOpen = nameOf(tab) === this.name;
      tab.setAttribute("aria-selected", String(isOpen));
      document.getElementById(nameOf(tab)).hidden = !isOpen;
    }
    rove(this.list, '[role="tab"]');
    if (location.hash.slice(1) !== this.name) history.replaceState(null, "", `#${this.name}`);
    this.onopen(this.name);
  }

  #has(name) {
    return this.tabs.some((tab) => nameOf(tab) === name);
  }
}

function nameOf(tab) {
  return tab.getAttribute("aria-controls");
}
