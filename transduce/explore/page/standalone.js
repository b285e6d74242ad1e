/* Starts a saved view: the data are in the page, and there is no server. */

import { byId, fill } from "./dom.js";
import { Inside } from "./inside.js";
import { saveAsPicture } from "./saving.js";

const view = JSON.parse(byId("view").textContent);
fill(byId("source-text"), view.source.text);
new Inside(byId("inside"), { switchOff: null, saves: [["Save as picture", saveAsPicture]] }).show(view);
