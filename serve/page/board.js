// The positions of an answer, block by block: what stands where, coloured by the order in which a
// block was filled, numbered by the forward that filled it. One tab stop; arrows move.

import { blockStarts, commitAt } from "./story.js";
import { element } from "./dom.js";

const ROW = 8;
const STEPS = {
  ArrowLeft: -1, ArrowRight: 1, ArrowUp: -ROW, ArrowDown: ROW, Home: -Infinity, End: Infinity,
};

export class Board {
  constructor() {
    this.starts = new Set();
    this.cells = new Map();
    this.blocks = element("div", { class: "blocks", role: "grid", "aria-label": "Positions" });
    this.inspector = element("p", { class: "inspector", "aria-hidden": "true" });
    this.root = element("div", { class: "board" }, this.blocks, this.inspector);
    this.blocks.addEventListener("keydown", (event) => this.#move(event));
    for (const name of ["pointerover", "focusin"])
      this.blocks.addEventListener(name, (event) => this.#inspect(event.target.closest(".cell")));
    this.blocks.addEventListener("pointerleave", () => this.#inspect(null));
    this.#inspect(null);
  }

  // Shows the story as of forward k.
  show(story, k) {
    for (const start of blockStarts(story)) if (!this.starts.has(start)) this.#addBlock(story, start);
    for (const [position, cell] of this.cells) this.#fill(cell, position, story, k);
  }

  #addBlock(story, start) {
    this.starts.add(start);
    const { block_size: size, prompt_tokens: prompt, limit, tail } = story.begin;
    const row = element("div", { class: "block", role: "presentation" });
    for (let position = start; position < start + size; position += 1) {
      // Of the prompt's end only what stands in a row with generated text.
      if (position < prompt - ((prompt - start) % ROW)) continue;
      const cell = element("div", { class: "cell", role: "gridcell", tabindex: "-1" });
      cell.append(element("span", { class: "token" }), element("span", { class: "forward" }));
      if (position < prompt) {
        cell.classList.add("prompt");
        const known = tail.find((fill) => fill[0] === position);
        cell.firstChild.textContent = shown(known[2]);
        cell.setAttribute("aria-label", `Position ${position}: ${spoken(known[2])}, of the prompt`);
      }
      cell.classList.toggle("beyond", position >= limit);
      this.cells.set(position, cell);
      row.append(cell);
    }
    const name = `Positions ${start} to ${start + size - 1}`;
    const header = element("div", { class: "range", role: "rowheader" }, name);
    this.blocks.append(element("div", { class: "strip", role: "row" }, header, row));
    const [first] = this.cells.values();
    if (row.contains(first)) first.tabIndex = 0;
  }

  #fill(cell, position, story, k) {
    if (position < story.begin.prompt_tokens) return;
    const commit = commitAt(story, position, k);
    const key = commit ? `${commit.forward}:${commit.token}` : "";
    cell.classList.toggle("new", commit?.forward === k);
    if (cell.dataset.key === key) return;
    cell.dataset.key = key;
    cell.classList.toggle("filled", Boolean(commit));
    cell.classList.toggle("special", /^<\|.*\|>$/.test(commit?.text ?? ""));
    cell.firstChild.textContent = commit ? shown(commit.text) : "";
    cell.lastChild.textContent = commit ? commit.forward : "";
    const share = commit ? (commit.order - 1) / Math.max(1, story.begin.block_size - 1) : 0;
    cell.style.setProperty("--order", `${(100 * share).toFixed(1)}%`);
    cell.setAttribute("aria-label", commit ? told(position, commit) : `Position ${position}: masked`);
  }

  #inspect(cell) {
    this.inspector.textContent = cell
      ? cell.getAttribute("aria-label")
      : "Colour: the order within the block. Number: the forward that filled the position.";
  }

  #move(event) {
    const step = STEPS[event.key];
    const all = [...this.cells.values()];
    const from = all.indexOf(document.activeElement);
    if (!step || from < 0) return;
    event.preventDefault();
    const to = all[Math.min(all.length - 1, Math.max(0, from + step))];
    all[from].tabIndex = -1;
    to.tabIndex = 0;
    to.focus();
  }
}

function told(position, { text, forward, order, confidence }) {
  const sure = confidence === null ? "" : `, confidence ${confidence.toFixed(4)}`;
  return `Position ${position}: ${spoken(text)}, forward ${forward}, number ${order} of its block${sure}`;
}

// A token in a small cell.
export function shown(text) {
  const special = /^<\|(.*)\|>$/.exec(text);
  if (special) return special[1];
  return text.trim() || text.replaceAll("\n", "↵").replaceAll(" ", "␣");
}

// A token as a sentence holds it.
export function spoken(text) {
  return JSON.stringify(text);
}
