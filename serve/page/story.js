// One watched answer, told from the events of its stream. Pure: no page, no network.
//
// A "forward" is a forward of the target that counts (NFE); a prefill is none. Positions are
// absolute. Everything can be asked as of any forward k, which is what the replay does.

import { layout, numRows } from "./layout.js";

// With shares it runs in one batch with another answer of this page.
export function newStory(name, shares = false) {
  return {
    name,
    shares,
    begin: null,
    end: null,
    error: null,
    done: false,
    text: "",
    forwards: [],
    places: new Map(),
    filled: 0,
    rows: 1,
    inBlock: new Map(),
  };
}

// Adds one choice of a chunk: its text, and the events beside it.
export function addChoice(story, choice) {
  story.text += choice.text ?? choice.delta?.content ?? "";
  const events = choice.maskahead;
  if (!events) return;
  if (events.begin) story.begin = events.begin;
  for (const round of events.rounds) addRound(story, round);
  if (events.end) story.end = events.end;
  const last = story.forwards.at(-1);
  if (last) last.characters = story.text.length;
}

function addRound(story, round) {
  const counts = round.nfe > (story.forwards.at(-1)?.nfe ?? 0);
  if (!counts) return;
  let fresh = 0;
  for (const step of round.steps) {
    for (const [position, token, text, confidence] of step) {
      const known = story.places.get(position) ?? [];
      const order = known.length ? known[0].order : nextOrder(story, position);
      if (!known.length) fresh += 1;
      known.push({ forward: round.nfe, order, token, text, confidence });
      story.places.set(position, known);
    }
  }
  story.filled += fresh;
  story.rows = Math.max(story.rows, numRows(layout(round)));
  story.forwards.push({ ...round, fresh, filled: story.filled, characters: story.text.length });
}

function nextOrder(story, position) {
  const { start, block_size: size } = story.begin;
  const block = Math.floor((position - start) / size);
  const order = (story.inBlock.get(block) ?? 0) + 1;
  story.inBlock.set(block, order);
  return order;
}

export function numForwards(story) {
  return story.forwards.length;
}

// What stands at a position after forward k; undefined where it is masked.
export function commitAt(story, position, k) {
  return story.places.get(position)?.findLast((commit) => commit.forward <= k);
}

export function forwardAt(story, k) {
  return story.forwards[Math.min(k, story.forwards.length) - 1];
}

export function textAt(story, k) {
  if (k >= story.forwards.length) return story.text;
  return story.text.slice(0, forwardAt(story, k)?.characters ?? 0);
}

// The blocks that have been opened so far: their first positions.
export function blockStarts(story) {
  if (!story.begin) return [];
  const { start, block_size: size } = story.begin;
  const last = Math.max(start, ...story.places.keys());
  const count = Math.floor((last - start) / size) + 1;
  return Array.from({ length: count }, (_, index) => start + index * size);
}

// The counts of the answer as of forward k. Without drafts the standard rule fills one position a
// forward, so the forwards of a draft-free run are the positions that were filled.
export function figuresAt(story, k) {
  const last = forwardAt(story, k);
  if (!last) return { nfe: 0, filled: 0, ratio: 1, accepted: null, seconds: 0, rate: 0 };
  const verified = story.forwards.slice(0, last.nfe).filter((round) => round.kind === "verify");
  const accepted = verified.reduce((sum, round) => sum + round.accepted, 0);
  return {
    nfe: last.nfe,
    filled: last.filled,
    ratio: last.filled / last.nfe,
    accepted: verified.length ? accepted / verified.length : null,
    seconds: last.seconds,
    rate: last.filled / last.seconds,
  };
}
