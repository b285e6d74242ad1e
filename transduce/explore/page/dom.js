/* Creates DOM elements. Text always becomes text nodes: no module of the page parses HTML. */

const SVG = "http://www.w3.org/2000/svg";

/** An HTML element; an attribute whose value is a function becomes a listener for the event of that name. */
export function element(name, attributes = {}, ...children) {
  return dress(document.createElement(name), attributes, children);
}

/** An SVG element, likewise. */
export function shape(name, attributes = {}, ...children) {
  return dress(document.createElementNS(SVG, name), attributes, children);
}

function dress(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") made.addEventListener(name, value);
    else if (value === true) made.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) made.setAttribute(name, value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Replace the children of an element. */
export function fill(container, ...children) {
  container.replaceChildren(...children.filter((child) => child !== null && child !== undefined));
}

export function byId(id) {
  return document.getElementById(id);
}
