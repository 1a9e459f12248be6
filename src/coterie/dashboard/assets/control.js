// Starts, pauses, resumes and stops runs, if the dashboard was started with --control.

import { announce, el, say } from "./format.js";

async function ask(what, given) {
  try {
    const response = await fetch(`/api/${what}`, {
      method: "POST", body: JSON.stringify(given), headers: { "Content-Type": "application/json" },
    });
    const answer = await response.json().catch(() => ({ error: "The dashboard sent an invalid answer." }));
    return response.ok ? answer : { error: answer.error ?? "The request failed." };
  } catch {
    return { error: "The dashboard does not respond." };
  }
}

export function startForm() {
  const experiment = el("input", { id: "experiment", list: "presets", required: true, placeholder: "panm-digits", autocomplete: "off" });
  const presets = el("datalist", { id: "presets" });
  const words = el("input", { id: "words", placeholder: "rounds=20 method.k=3", autocomplete: "off", spellcheck: "false" });
  const error = el("p", { class: "wrong", role: "alert" });
  fetch("/api/presets").then((answer) => answer.json())
    .then((names) => presets.append(...names.map((name) => el("option", { value: name })))).catch(() => {});
  const form = el("form", {},
    el("label", { for: "experiment" }, "Preset or .toml file", experiment, presets),
    el("label", { for: "words" }, "Settings (key=value)", words),
    el("button", { class: "main", type: "submit", text: "Start run" }), error,
    el("p", { class: "soft", text: "Pause stops a run at its next checkpoint; Resume continues from there with the same result. Nothing is kept in memory meanwhile. Stop ends a run immediately; progress since its last checkpoint is lost." }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    say(error, "");
    const answer = await ask("start", { experiment: experiment.value.trim(), words: words.value });
    if (answer.error) say(error, answer.error);
    else { announce(`${answer.run} started`); words.value = ""; }
  });
  return el("section", { class: "card", "aria-label": "Start a run" }, el("header", {}, el("h2", { text: "Start a run" })), form);
}

/** The buttons of a run that this dashboard started; hidden for other runs. */
export class Buttons {
  constructor() {
    this.wrong = el("span", { class: "wrong", role: "alert" });
    this.asked = el("small");
    this.buttons = Object.fromEntries(["pause", "resume", "stop"].map((what) => [what, this.button(what)]));
    this.element = el("div", { class: "buttons", hidden: true }, ...Object.values(this.buttons), this.asked, this.wrong);
  }

  button(what) {
    return el("button", { type: "button", text: what[0].toUpperCase() + what.slice(1), onclick: async () => {
      say(this.wrong, "");
      const answer = await ask(what, { run: this.id });
      say(this.wrong, answer.error ?? "");
    } });
  }

  update(run) {
    this.id = run.id;
    const can = run.control;
    this.element.hidden = !can || !(can.pause || can.resume || can.stop);
    if (!can) return;
    for (const [what, button] of Object.entries(this.buttons)) {
      button.hidden = !can[what];
      button.setAttribute("aria-label", `${what} ${run.id}`);
    }
    say(this.asked, can.asked === "pause" ? "pausing at the next checkpoint …" : can.asked === "stop" ? "stopping …" : "");
  }
}
