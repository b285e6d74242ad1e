/* Small pictures of all heads of one use of attention: a row for each layer, a column for each head. */

import { describeHead } from "./statistics.js";
import { weightShade } from "./colours.js";
import { element, fill } from "./dom.js";
import { rove } from "./keyboard.js";
import { raster } from "./raster.js";
import { headMap } from "./uses.js";

/** Draw all heads into `container`; a click on one calls `choose(layer, head)`. */
export function drawHeads(container, view, part, colours, choose) {
  const layers = view.maps[part];
  container.style.setProperty("--heads", layers[0].length);
  fill(
    container,
    ...layers.flatMap((heads, layer) =>
      heads.map((_, head) => headButton(view, { part, layer, head }, colours, choose)),
    ),
  );
}

/** Mark the head that is enlarged. */
export function markHead(container, { layer, head }, perLayer) {
  const buttons = [...container.children];
  buttons.forEach((button, index) => button.setAttribute("aria-pressed", String(index === layer * perLayer + head)));
  rove(container, "button", perLayer);
}

export function isOff(view, { part, layer, head }) {
  return view.off.some((one) => one[0] === part && one[1] === layer && one[2] === head);
}

function headButton(view, one, colours, choose) {
  const map = headMap(view, one);
  const off = isOff(view, one);
  const attends = describeHead(view.statistics[one.part][one.layer][one.head], one.part, map.columns.length);
  const number = `${one.layer + 1}.${one.head + 1}`;
  const state = off ? "switched off" : `attends ${attends}`;
  const name = `${number}: layer ${one.layer + 1}, head ${one.head + 1}, ${state}`;
  const picture = raster(map.weights, colours.weights, weightShade);
  picture.setAttribute("aria-hidden", "true");
  return element(
    "button",
    {
      type: "button",
      class: off ? "head off" : "head",
      "aria-pressed": "false",
      "aria-label": name,
      title: name,
      click: () => choose(one.layer, one.head),
    },
    picture,
    element("span", { class: "number", "aria-hidden": "true" }, number),
  );
}
