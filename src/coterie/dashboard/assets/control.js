// Starting, pausing, resuming and stopping: only where the dashboard was started with --control.

import { announce, el, say } from "./format.js";

async function ask(what, given) {
  try {
    const answer = await fetch(`/api/${what}`, {
      method: "POST", body: JSON.stringify(given), headers: { "Content-Type": "application/json" },
    });
    const told = await answer.json().catch(() => ({ error: "The dashboard did not understand." }));
    return answer.ok ? told : { error: told.error ?? "It did not work." };
  } catch {
    return { error: "The dashboard does not answer." };
  }
}

export function startForm() {
  const experiment = el("input", { id: "experiment", list: "presets", required: true, placeholder: "panm-digits", autocomplete: "off" });
  const presets = el("datalist", { id: "presets" });
  const words = el("input", { id: "words", placeholder: "rounds=20 method.k=3", autocomplete: "off", spellcheck: "false" });
  const wrong = el("p", { class: "wrong", role: "alert" });
  fetch("/api/presets").then((answer) => answer.json())
    .then((names) => presets.append(...names.map((name) => el("option", { value: name })))).catch(() => {});
  const form = el("form", {},
    el("label", { for: "experiment" }, "Preset or .toml file", experiment, presets),
    el("label", { for: "words" }, "Settings (key=value)", words),
    el("button", { class: "main", type: "submit", text: "Start run" }), wrong,
    el("p", { class: "soft", text: "Pause stops a run at its next checkpoint, and resume goes on from there as if nothing had happened: nothing is kept in memory. Stop ends it at once; what it did since its last checkpoint is lost." }));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    say(wrong, "");
    const told = await ask("start", { experiment: experiment.value.trim(), words: words.value });
    if (told.error) say(wrong, told.error);
    else { announce(`${told.run} was started`); words.value = ""; }
  });
  return el("section", { class: "card", "aria-label": "Start a run" }, el("header", {}, el("h2", { text: "Start a run" })), form);
}

/** What can be done with a run that this dashboard started; nothing where it did not. */
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
      const told = await ask(what, { run: this.id });
      say(this.wrong, told.error ?? "");
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
