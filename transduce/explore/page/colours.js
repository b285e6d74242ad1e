/* Colours for canvases, taken from the style sheet so that light and dark are decided in one place. */

const SHADES = 256;

/** The colours of this moment. */
export function palette() {
  const style = getComputedStyle(document.documentElement);
  const read = (name) => style.getPropertyValue(`--${name}`).trim();
  return {
    ink: read("ink"),
    muted: read("muted"),
    paper: read("paper"),
    line: read("line"),
    accent: read("accent"),
    strong: read("strong"),
    weights: ramp([read("weight-none"), read("weight-some"), read("weight-all")]),
    signs: ramp([read("sign-minus"), read("sign-zero"), read("sign-plus")]),
  };
}

/** Call back whenever light turns dark or dark light. */
export function onSchemeChange(listener) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", listener);
}

/** Small weights are many and matter: the root keeps them visible. */
export function weightShade(weight) {
  return Math.round(Math.sqrt(Math.min(1, Math.max(0, weight))) * (SHADES - 1));
}

/** From -1 to 1. */
export function signShade(value) {
  return Math.round(((Math.min(1, Math.max(-1, value)) + 1) / 2) * (SHADES - 1));
}

function ramp(stops) {
  const colours = stops.map(parse);
  return Array.from({ length: SHADES }, (_, shade) => {
    const place = (shade / (SHADES - 1)) * (colours.length - 1);
    const from = Math.min(colours.length - 2, Math.floor(place));
    return mix(colours[from], colours[from + 1], place - from);
  });
}

function parse(hex) {
  return [1, 3, 5].map((begin) => Number.parseInt(hex.slice(begin, begin + 2), 16));
}

function mix(one, other, share) {
  return one.map((value, channel) => Math.round(value + (other[channel] - value) * share));
}
