// One answer on the page: its counts, its rhythm, its positions, its drafts, its text.

import { Board } from "./board.js";
import { element, svg } from "./dom.js";
import { figuresAt, forwardAt, numForwards, textAt } from "./story.js";
import { TreeView } from "./tree.js";

export class Column {
  constructor(story) {
    this.story = story;
    this.state = element("span", { class: "state" }, "waiting");
    this.head = element("header", {}, element("h2", {}, story.name), this.state);
    this.forwards = element("strong", {}, "0");
    this.ratio = element("span", { class: "ratio" });
    this.bars = { ours: element("i"), free: element("i") };
    this.counts = element("p", { class: "counts" });
    this.rhythm = svg("svg", { class: "rhythm", "aria-hidden": "true", preserveAspectRatio: "none" });
    this.board = new Board();
    this.tree = new TreeView();
    this.text = element("pre", { class: "text", tabindex: "0", role: "group", "aria-label": "Text" });
    this.problem = element("p", { class: "problem", role: "alert" });
    this.root = element(
      "article",
      { class: "card column", "aria-label": story.name },
      this.head,
      this.#meter(),
      this.counts,
      this.rhythm,
      this.problem,
      element("div", { class: "parts" }, this.tree.root, this.board.root, this.text),
    );
  }

  // Shows the story as of forward k, in as much room as the largest beside it needs.
  show(k, room) {
    const story = this.story;
    const figures = figuresAt(story, k);
    this.state.textContent = stateOf(story, k);
    this.state.classList.toggle("done", story.done && !story.error);
    this.forwards.textContent = figures.nfe;
    const ratio = story.begin && figures.nfe ? `${figures.ratio.toFixed(2)} positions a forward` : "";
    this.ratio.textContent = ratio;
    const most = Math.max(1, story.filled);
    this.bars.ours.style.width = `${(100 * figures.nfe) / most}%`;
    this.bars.free.style.width = `${(100 * figures.filled) / most}%`;
    this.freeLabel.textContent = freeOf(story, figures.filled);
    this.counts.textContent = countsOf(figures, story.shares);
    // Set anew it would be read out anew.
    if (this.problem.textContent !== (story.error ?? "")) this.problem.textContent = story.error;
    this.root.classList.toggle("nothing", !story.begin);
    if (story.begin) {
      this.board.show(story, k);
      this.#beat(k, room.forwards);
    }
    this.tree.show(forwardAt(story, k), room.rows);
    this.text.textContent = textAt(story, k);
  }

  #meter() {
    this.freeLabel = element("span", {}, "");
    const ours = element("div", { class: "bar ours" }, this.bars.ours);
    const free = element("div", { class: "bar free" }, this.bars.free);
    const big = element("p", { class: "big" }, this.forwards, " forwards ", this.ratio);
    const note = element("p", { class: "note" }, this.freeLabel);
    return element("div", { class: "meter" }, big, ours, free, note);
  }

  // One bar a forward: how many positions it filled.
  #beat(k, room) {
    const { forwards } = this.story;
    const tallest = Math.max(...forwards.map((round) => round.fresh), 8);
    this.rhythm.setAttribute("viewBox", `0 0 ${Math.max(room, 24) * 4} 24`);
    const bars = forwards.map((round, index) => {
      const height = Math.max(1, (22 * round.fresh) / tallest);
      const kind = round.nfe === Math.min(k, forwards.length) ? "now" : round.nfe < k ? "past" : "";
      const place = { x: index * 4 + 0.5, y: 24 - height, width: 3, height };
      return svg("rect", { ...place, class: `${round.kind} ${kind}` });
    });
    this.rhythm.replaceChildren(...bars);
  }
}

function stateOf(story, k) {
  if (story.error) return "failed";
  if (k < numForwards(story)) return `forward ${k} of ${numForwards(story)}`;
  if (story.end) return story.end.stop_reason === "stop" ? "finished" : "stopped at the limit";
  if (story.done) return "stopped";
  return story.begin ? "running" : "waiting";
}

// Without drafts the standard rule fills one position a forward: so many forwards would it take.
function freeOf({ begin }, filled) {
  if (!begin) return "";
  if (begin.rule.rule === "standard") return `${filled} without drafts`;
  return `${filled} at one position a forward`;
}

function countsOf({ nfe, filled, accepted, seconds, rate }, shares) {
  if (!nfe) return "";
  const speed = `${rate.toFixed(rate < 10 ? 1 : 0)} a second${shares ? " (shared batch)" : ""}`;
  const kept = accepted === null ? "" : ` · ${accepted.toFixed(1)} drafts accepted a round`;
  return `${filled} positions in ${seconds.toFixed(2)} s · ${speed}${kept}`;
}
