/* Small pictures of all heads of one use of attention: a row for each layer, a column for each head. */

import { describeHead } from "./statistics.js";
import { weightShade } from "./colours.js";
import { element, fill } from "./dom.js";
import { rove } from "./keyboard.js";
import { raster } from "./raster.js";
import { headMap } from "./uses.js";

/** Fill `container`; `choose(layer, head)` is called for the one that is clicked. */
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

/** Show which one is enlarged. */
export function markHead(container, { layer, head }, perLayer) {
  const buttons = [...container.children];
  buttons.forEach((button, place) => button.setAttribute("aria-pressed", String(place === layer * perLayer + head)));
  rove(container, "button", perLayer);
}

export function isOff(view, { part, layer, head }) {
  return view.off.some((one) => one[0] === part && one[1] === layer && one[2] === head);
}

function headButton(view, place, colours, choose) {
  const map = headMap(view, place);
  const off = isOff(view, place);
  const looks = describeHead(view.statistics[place.part][place.layer][place.head], place.part, map.columns.length);
  const number = `${place.layer + 1}.${place.head + 1}`;
  const name = `${number}: layer ${place.layer + 1}, head ${place.head + 1}, ${off ? "switched off" : `looks ${looks}`}`;
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
      click: () => choose(place.layer, place.head),
    },
    picture,
    element("span", { class: "number", "aria-hidden": "true" }, number),
  );
}
