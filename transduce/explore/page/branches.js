/* The search tree up to a step: which nodes are shown, their positions, and whether they were kept. */

const COLUMN = 114;
const ROW = 34;
const MARGIN = 16;

/**
 * Nodes with coordinates and outcomes. The selected step shows all candidates, earlier steps only those that were kept
 * or ended. A kept node without living descendants is `abandoned`.
 */
export function branches(view, step) {
  const name = "\u2039start\u203a";
  const nodes = [{ id: "start", x: MARGIN, y: MARGIN + ROW * 1.5, outcome: "kept", name, step: -1 }];
  view.steps.slice(0, step + 1).forEach((one, index) => {
    const shown = index === step ? one.candidates : one.candidates.filter(({ state }) => state !== "dropped");
    inOrder(shown).forEach((candidate, row) =>
      nodes.push({
        ...candidate,
        x: MARGIN + (index + 1) * COLUMN,
        y: MARGIN + row * ROW,
        outcome: candidate.state,
        step: index,
      }),
    );
  });
  const byId = new Map(nodes.map((node) => [node.id, node]));
  markAbandoned(nodes, byId, step);
  markWinner(view, byId, step);
  const height = Math.max(...nodes.map(({ y }) => y)) + ROW + MARGIN;
  return { nodes, byId, width: (step + 2) * COLUMN + 2 * MARGIN, height, column: COLUMN, row: ROW };
}

/** Kept candidates first, then ended, then dropped ones; the most probable first within each group. */
function inOrder(candidates) {
  const rank = { kept: 0, ended: 1, dropped: 2 };
  return [...candidates].sort((one, other) => rank[one.state] - rank[other.state]);
}

function markAbandoned(nodes, byId, step) {
  const living = new Set();
  for (const node of nodes) {
    if (node.outcome === "ended" || (node.step === step && node.outcome === "kept")) {
      for (let here = node; here && !living.has(here.id); here = byId.get(here.parent)) living.add(here.id);
    }
  }
  for (const node of nodes) if (node.outcome === "kept" && !living.has(node.id)) node.outcome = "abandoned";
}

/** Mark the best output, up to this step. */
function markWinner(view, byId, step) {
  for (const id of (view.outputs[0]?.path ?? []).slice(0, step + 1)) {
    const node = byId.get(id);
    if (node) node.wins = true;
  }
}
