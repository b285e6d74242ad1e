/* Colours for canvases, read from the style sheet, which defines both the light and the dark scheme. */

const SHADES = 256;

/** The colours of the current scheme. */
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

/** Call `listener` when the scheme changes between light and dark. */
export function onSchemeChange(listener) {
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", listener);
}

/** The shade of a weight; the square root keeps small weights visible. */
export function weightShade(weight) {
  return Math.round(Math.sqrt(Math.min(1, Math.max(0, weight))) * (SHADES - 1));
}

/** The shade of a value from -1 to 1. */
export function signShade(value) {
  return Math.round(((Math.min(1, Math.max(-1, value)) + 1) / 2) * (SHADES - 1));
}

function ramp(stops) {
  const colours = stops.map(parse);
  return Array.from({ length: SHADES }, (_, shade) => {
    const position = (shade / (SHADES - 1)) * (colours.length - 1);
    const from = Math.min(colours.length - 2, Math.floor(position));
    return mix(colours[from], colours[from + 1], position - from);
  });
}

function parse(hex) {
  return [1, 3, 5].map((begin) => Number.parseInt(hex.slice(begin, begin + 2), 16));
}

function mix(one, other, share) {
  return one.map((value, channel) => Math.round(value + (other[channel] - value) * share));
}
