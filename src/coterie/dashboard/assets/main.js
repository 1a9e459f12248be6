// The page: routes between its two views, and redraws what has changed.

import { announce, say } from "./format.js";
import { RunPage } from "./run_page.js";
import { RunsPage } from "./runs_page.js";
import { Stream } from "./stream.js";

const page = document.getElementById("page");
const link = document.getElementById("link");
const control = document.documentElement.dataset.control === "yes";
let shown = null;
let due = new Set();
let states = {};

const stream = new Stream(
  (changed) => {
    if (!due.size) requestAnimationFrame(draw);
    for (const section of changed) due.add(section);
  },
  (linked) => {
    link.classList.toggle("lost", !linked);
    say(link, linked ? "live" : "connection lost, retrying");
  },
);

function draw() {
  const changed = due;
  due = new Set();
  if (changed.has("runs")) announceStates();
  shown?.update(changed);
}

/** Screen readers are told when the state of a run changes, not of each round. */
function announceStates() {
  const now = Object.fromEntries(Object.values(stream.runs).map((run) => [run.id, run.state]));
  const ended = Object.keys(now).filter((id) => states[id] && states[id] !== now[id]);
  if (ended.length) announce(ended.map((id) => `${id}: ${now[id]}`).join(". "));
  states = now;
}

function route() {
  const run = location.hash.startsWith("#/run/") ? decodeURIComponent(location.hash.slice(6)) : "";
  if (location.hash && !location.hash.startsWith("#/")) return; // the skip link
  stream.open(run);
  shown = run ? new RunPage(stream, run, control) : new RunsPage(stream, control);
  page.replaceChildren(shown.element);
  document.title = run ? `${run} · Coterie` : "Coterie dashboard";
  shown.update(new Set(["runs"]));
  if (route.again) page.focus();
  route.again = true;
}

addEventListener("hashchange", route);
setInterval(() => shown?.tick?.(), 5000);
route();
