// The page: asks the endpoint, runs what the form says, shows it while it comes.

import { compare } from "./certificate.js";
import { Column } from "./column.js";
import { Form } from "./form.js";
import { Replay } from "./replay.js";
import { addChoice, newStory, numForwards } from "./story.js";
import { servedModel, stream } from "./stream.js";
import { startTheme } from "./theme.js";

const find = (id) => document.getElementById(id);
const form = new Form(find("form"));
const replay = new Replay(find("replay"), show);
let columns = [];
let running = null;
let meeting = null;
let drawing = false;

// One at a time: Enter in the key's field changes it and submits the form.
function meet() {
  meeting ??= greet().finally(() => (meeting = null));
  return meeting;
}

async function greet() {
  find("problem").textContent = "";
  try {
    const model = await servedModel(form.key);
    form.serve(model);
    form.fields.key.removeAttribute("aria-invalid");
    find("model").textContent = described(model);
  } catch (error) {
    refuse(error);
    find("model").textContent = "the endpoint has not said what it serves";
  }
  find("form").classList.toggle("unserved", !form.model);
  find("run").disabled = false;
}

function described({ id, maskahead: { dtype, block_size, certificate } }) {
  const facts = [id, dtype, `blocks of ${block_size}`];
  if (certificate) facts.push(`certificate: ${certificate}`);
  return facts.join(" · ");
}

async function run() {
  const requests = form.requests();
  running = new AbortController();
  const shares = requests.length > 1 && !form.inTurn;
  columns = requests.map(({ name }) => new Column(newStory(name, shares)));
  find("columns").replaceChildren(...columns.map((column) => column.root));
  find("columns").classList.toggle("two", columns.length > 1);
  find("empty").hidden = true;
  find("certificate").hidden = true;
  find("problem").textContent = "";
  replay.reset();
  busy(true);
  find("results").scrollIntoView({ block: "nearest" });
  say(`Running ${requests.map(({ name }) => name).join(" and ")}.`);
  const jobs = requests.map(({ request }, index) => () => answer(columns[index], request));
  if (form.inTurn) for (const job of jobs) await job();
  else await Promise.all(jobs.map((job) => job()));
  busy(false);
  running = null;
  draw();
  conclude();
}

async function answer(column, request) {
  const { story } = column;
  try {
    await stream(request, form.key, running.signal, (choice) => {
      addChoice(story, choice);
      drawSoon();
    });
  } catch (error) {
    if (error.name !== "AbortError") {
      story.error = error.message;
      if (error.status === 401) askForKey();
    }
  }
  story.done = true;
  drawSoon();
}

function drawSoon() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    draw();
  });
}

function draw() {
  replay.grow(longest());
  if (!longest()) show(0);
}

function show(k) {
  const rows = Math.max(1, ...columns.map(({ story }) => story.rows));
  for (const column of columns) column.show(k, { forwards: longest(), rows });
}

function longest() {
  return Math.max(0, ...columns.map(({ story }) => numForwards(story)));
}

function conclude() {
  const stories = columns.map(({ story }) => story);
  const finished = stories.filter((story) => story.end);
  say(finished.map(summary).join(" ") || "No answer.");
  if (finished.length < 2) return;
  const { kind, title, told } = compare(...finished);
  const line = find("certificate");
  const strong = document.createElement("strong");
  strong.textContent = title;
  line.replaceChildren(strong, ` ${told}`);
  line.className = `certificate ${kind}`;
  line.hidden = false;
  say(`${title}. ${told} ${finished.map(summary).join(" ")}`);
}

function summary({ name, end, filled }) {
  return `${name}: ${end.nfe} forwards for ${filled} positions.`;
}

function refuse(error) {
  find("problem").textContent = error.message;
  if (error.status === 401) askForKey();
}

function askForKey() {
  const { key } = form.fields;
  find("key").hidden = false;
  if (form.key) key.setAttribute("aria-invalid", "true");
  key.focus();
}

// Run and Stop take turns; the keyboard stays where it was.
function busy(is) {
  const [from, to] = is ? [find("run"), find("stop")] : [find("stop"), find("run")];
  const held = document.activeElement === from;
  find("stop").hidden = !is;
  find("run").disabled = is;
  if (held) to.focus();
  find("results").setAttribute("aria-busy", String(is));
}

// For screen readers: what begins and what ends, never the rounds between.
function say(text) {
  find("status").textContent = text;
}

find("form").addEventListener("submit", async (event) => {
  event.preventDefault();
  if (!form.model) await meet();
  if (form.model && !running) await run();
});
find("prompt").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) find("form").requestSubmit();
});
find("stop").addEventListener("click", () => running?.abort());
find("key").addEventListener("change", () => form.model || meet());
startTheme(find("theme"));
meet();
