// The draft tree of one forward, as a picture with a sentence for those who do not see it.

import { shown, spoken } from "./board.js";
import { element, svg } from "./dom.js";
import { layout, numRows } from "./layout.js";

const HEIGHT = 24;
const GAP = { x: 16, y: 7 };
const MARGIN = 4;
const LETTER = 7;
const NARROWEST = 34;
const MOST_ROWS = 5;
const ROOM_FOR_BAR = 10;

export class TreeView {
  constructor() {
    this.caption = element("figcaption");
    this.scroll = element("div", { class: "scroll", tabindex: "0", role: "group" });
    this.scroll.setAttribute("aria-label", "Draft tree, scrolls sideways");
    this.root = element("figure", { class: "tree" }, this.caption, this.scroll);
    this.round = null;
  }

  // The picture of a round, in a window of so many rows, at most MOST_ROWS.
  show(round, rows) {
    this.scroll.style.height = `${heightOf(Math.min(rows, MOST_ROWS)) + ROOM_FOR_BAR}px`;
    if (round === this.round) return;
    this.round = round;
    this.caption.textContent = round ? captionOf(round) : "No forward yet.";
    this.scroll.replaceChildren(...(round ? [draw(round)] : []));
  }
}

function captionOf(round) {
  const filled = round.steps.reduce((sum, step) => sum + step.length, 0);
  const drafts = round.drafts
    ? `${round.drafts} drafts, ${round.accepted} accepted`
    : "no drafts";
  return `Forward ${round.nfe} (${round.kind}): ${drafts}, ${filled} filled`;
}

function draw(round) {
  const nodes = layout(round);
  const width = stretch(nodes);
  const size = { width, height: heightOf(numRows(nodes)) };
  const picture = svg("svg", { ...size, role: "img", "aria-label": sentence(nodes) });
  picture.append(...nodes.slice(1).map((node) => edge(nodes[node.parent], node)));
  picture.append(...nodes.map(drawn));
  return picture;
}

// Gives every node its place across, as wide as the longest label of its depth; returns the width.
function stretch(nodes) {
  const widths = [];
  for (const node of nodes) {
    const wanted = Math.max(NARROWEST, label(node).length * LETTER + 14);
    widths[node.depth] = Math.max(widths[node.depth] ?? 0, wanted);
  }
  const starts = [MARGIN];
  widths.forEach((width, depth) => starts.push(starts[depth] + width + GAP.x));
  for (const node of nodes) Object.assign(node, { x: starts[node.depth], width: widths[node.depth] });
  return starts.at(-1) - GAP.x + MARGIN;
}

const heightOf = (rows) => rows * (HEIGHT + GAP.y) - GAP.y + 2 * MARGIN;

const top = (node) => MARGIN + node.row * (HEIGHT + GAP.y);

function edge(from, to) {
  const [x, y] = [from.x + from.width, top(from) + HEIGHT / 2];
  const [toX, toY] = [to.x, top(to) + HEIGHT / 2];
  const middle = x + GAP.x / 2;
  const d = `M${x} ${y} C${middle} ${y} ${middle} ${toY} ${toX} ${toY}`;
  return svg("path", { class: `edge ${to.kind}`, d });
}

function drawn(node) {
  const [x, y, whole] = [node.x, top(node), node.width];
  const parts = [
    svg("title", {}, nameOf(node)),
    svg("rect", { x, y, width: whole, height: HEIGHT, rx: 7 }),
    svg("text", { x: x + whole / 2, y: y + HEIGHT / 2 + 4, "text-anchor": "middle" }, label(node)),
  ];
  if (node.mass != null) {
    const width = Math.max(1, (whole - 12) * Math.min(1, node.mass));
    parts.push(svg("rect", { class: "mass", x: x + 6, y: y + HEIGHT - 4, width, height: 2, rx: 1 }));
  }
  return svg("g", { class: `node ${node.kind}` }, ...parts);
}

const MOST_LETTERS = 9;

function label({ kind, fills }) {
  if (kind === "root") return "so far";
  if (!fills.length) return "next block";
  const text = shown(fills[0][2]);
  const more = fills.length > 1 ? ` +${fills.length - 1}` : "";
  const room = MOST_LETTERS - more.length;
  return (text.length > room ? `${text.slice(0, room - 1)}…` : text) + more;
}

function nameOf({ kind, fills, mass }) {
  if (kind === "root") return "the block so far";
  const told = fills.map(([position, , text]) => `${spoken(text)} at ${position}`).join(", ");
  const known = mass == null ? "" : `, mass ${mass.toPrecision(3)}`;
  const outcome = { accepted: "accepted", rejected: "not reached", own: "the target's own" }[kind];
  return `${told || "the next block, masked"}${known}: ${outcome}`;
}

function sentence(nodes) {
  const of = (kind) => nodes.filter((node) => node.kind === kind).map(nameOf);
  const path = [...of("accepted"), ...of("own")].join("; ");
  return `Path: ${path}. Drafts that were not reached: ${of("rejected").join("; ") || "none"}.`;
}
