/* The search tree up to a step: which nodes are shown, their positions, and whether they were kept. */

const COLUMN = 114;
const ROW = 34;
const MARGIN = 16;

/**
 * Nodes with places and fates. Of the step looked at every candidate is shown; of those before it what was kept or
 * ended. A kept node from which nothing goes on any more is `abandoned`.
 */
export function branches(view, step) {
  const nodes = [{ id: "start", x: MARGIN, y: MARGIN + ROW * 1.5, fate: "kept", name: "\u2039start\u203a", step: -1 }];
  view.steps.slice(0, step + 1).forEach((one, place) => {
    const shown = place === step ? one.candidates : one.candidates.filter(({ state }) => state !== "dropped");
    inOrder(shown).forEach((candidate, row) =>
      nodes.push({
        ...candidate,
        x: MARGIN + (place + 1) * COLUMN,
        y: MARGIN + row * ROW,
        fate: candidate.state,
        step: place,
      }),
    );
  });
  const byId = new Map(nodes.map((node) => [node.id, node]));
  markAbandoned(nodes, byId, step);
  markWinner(view, byId, step);
  const height = Math.max(...nodes.map(({ y }) => y)) + ROW + MARGIN;
  return { nodes, byId, width: (step + 2) * COLUMN + 2 * MARGIN, height, column: COLUMN, row: ROW };
}

/** What goes on first, then what ended, then what was dropped; each most probable first. */
function inOrder(candidates) {
  const rank = { kept: 0, ended: 1, dropped: 2 };
  return [...candidates].sort((one, other) => rank[one.state] - rank[other.state]);
}

function markAbandoned(nodes, byId, step) {
  const living = new Set();
  for (const node of nodes) {
    if (node.fate === "ended" || (node.step === step && node.fate === "kept")) {
      for (let here = node; here && !living.has(here.id); here = byId.get(here.parent)) living.add(here.id);
    }
  }
  for (const node of nodes) if (node.fate === "kept" && !living.has(node.id)) node.fate = "abandoned";
}

/** The output that wins in the end, as far as it is written at this step. */
function markWinner(view, byId, step) {
  for (const id of (view.outputs[0]?.path ?? []).slice(0, step + 1)) {
    const node = byId.get(id);
    if (node) node.wins = true;
  }
}
