// Where the nodes of a forward's draft tree stand. Pure.
//
// The accepted path runs straight along the first row; whatever branches off hangs below.

// Nodes with depth, row and parent's place: the root, the drafts, then what the target itself
// filled behind the last accepted draft.
export function layout(round) {
  const nodes = [{ kind: "root", fills: [], parent: null }];
  for (const { parent, fills, mass, accepted } of round.tree) {
    const kind = accepted ? "accepted" : "rejected";
    nodes.push({ kind, fills, mass, parent: parent === null ? 0 : parent + 1 });
  }
  let above = pathEnd(nodes);
  for (const fills of round.steps.slice(numAccepted(nodes))) {
    nodes.push({ kind: "own", fills, parent: above });
    above = nodes.length - 1;
  }
  place(nodes);
  return nodes;
}

export function numRows(nodes) {
  return Math.max(...nodes.map((node) => node.row)) + 1;
}

// Accepted nodes that filled something: each stands for one step.
function numAccepted(nodes) {
  return nodes.filter((node) => node.kind === "accepted" && node.fills.length).length;
}

function pathEnd(nodes) {
  let end = 0;
  for (;;) {
    const next = nodes.findIndex((node) => node.kind === "accepted" && node.parent === end);
    if (next < 0) return end;
    end = next;
  }
}

function place(nodes) {
  const children = nodes.map(() => []);
  nodes.forEach((node, index) => node.parent !== null && children[node.parent].push(index));
  let rows = 0;
  const walk = (index, depth) => {
    const weight = (child) => ({ accepted: 2, own: 1 })[nodes[child].kind] ?? 0;
    Object.assign(nodes[index], { depth, row: rows });
    const ordered = children[index].sort(
      (a, b) => weight(b) - weight(a) || (nodes[b].mass ?? 0) - (nodes[a].mass ?? 0),
    );
    ordered.forEach((child, number) => {
      if (number) rows += 1;
      walk(child, depth + 1);
    });
  };
  walk(0, 0);
}
