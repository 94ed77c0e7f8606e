// Whether two finished answers are the same, and whether that was promised. Pure.

export function compare(ours, theirs) {
  const [a, b] = [ours.end.token_ids, theirs.end.token_ids];
  const parts = firstDifference(a, b);
  const same = parts === null;
  const promised =
    ours.begin.promises_equality &&
    theirs.begin.promises_equality &&
    JSON.stringify(ours.begin.rule) === JSON.stringify(theirs.begin.rule) &&
    ours.begin.seed === theirs.begin.seed;
  if (promised && same) return { kind: "exact", title: "Exact", told: exactly(ours, theirs) };
  if (promised) return { kind: "differs", title: "Differs", told: partly(parts, a, b) };
  const told = same ? "Here both wrote the same tokens all the same." : partly(parts, a, b);
  return { kind: "approximate", title: "Approximate", told: `${why(ours, theirs)} ${told}` };
}

// The first place at which two lists differ, or null.
export function firstDifference(a, b) {
  const length = Math.max(a.length, b.length);
  for (let index = 0; index < length; index += 1) if (a[index] !== b[index]) return index;
  return null;
}

function exactly({ name, end }, theirs) {
  const [few, many] = [end.nfe, theirs.end.nfe].sort((a, b) => a - b);
  const saved = few < many ? `, in ${few} forwards and in ${many}` : "";
  const count = `the same ${end.token_ids.length} tokens`;
  return `${name} and ${theirs.name} wrote ${count}, compared one by one${saved}.`;
}

function partly(index, a, b) {
  return `They part at token ${index + 1} (of ${a.length} and ${b.length}).`;
}

function why(ours, theirs) {
  const loose = [ours, theirs].find((story) => !story.begin.promises_equality);
  if (loose) return `${loose.name} does not promise what its draft-free run writes.`;
  return "The two commit by different rules, so no equality is promised.";
}
