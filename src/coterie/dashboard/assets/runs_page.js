// The list of runs, and the form that starts one.

import { Buttons, startForm } from "./control.js";
import { NOTHING, Rows, ago, chip, el, metricText, number, say, size } from "./format.js";

export const address = (id) => `#/run/${encodeURIComponent(id)}`;

export class RunsPage {
  constructor(stream, control) {
    this.stream = stream;
    this.body = el("tbody");
    this.rows = new Rows(this.body, () => new RunRow());
    this.filter = el("input", { type: "search", id: "filter", placeholder: "name, method, state", oninput: () => this.update() });
    this.empty = el("p", { class: "empty soft" });
    this.counts = el("p", { class: "soft" });
    const heads = ["State", "Run", "Method", "Data", "Round", "Validation", "Test", "Exchanged", "Updated"];
    const minor = new Set(["Data", "Test", "Exchanged", "Updated"]);
    const names = new Set(["State", "Run", "Method", "Data"]);
    const kind = (head) => `${names.has(head) ? "name" : ""} ${minor.has(head) ? "minor" : ""}`;
    const head = el("tr", {}, ...heads.map((h) => el("th", { scope: "col", class: kind(h), text: h })));
    this.table = el("table", { class: "runs" }, el("caption", { class: "hidden", text: "Runs" }), el("thead", {}, head), this.body);
    this.element = el("div", {},
      el("div", { class: "head" }, el("h1", { text: "Runs" }), this.counts),
      control ? startForm() : null,
      el("section", { class: "card", "aria-label": "Runs" },
        el("header", {}, el("span"), el("div", { class: "buttons" }, el("label", { for: "filter", text: "Filter" }), this.filter)),
        el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of runs" }, this.table), this.empty));
  }

  update() {
    const wanted = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const all = Object.values(this.stream.runs);
    const text = (run) => [run.id, run.method, run.data, run.state, run.partition].join(" ").toLowerCase();
    const matches = all.filter((run) => wanted.every((word) => text(run).includes(word)));
    matches.sort((a, b) => order(a) - order(b) || b.time - a.time || (a.id < b.id ? -1 : 1));
    this.rows.show(matches.map((run) => [run.id, run]));
    const running = all.filter((run) => run.state === "running").length;
    say(this.counts, `${number(all.length)} in this folder, ${running} running`);
    this.table.hidden = !matches.length;
    this.empty.hidden = matches.length > 0;
    say(this.empty, all.length ? "No run matches the filter." : "There is no run in this folder yet. New runs appear here.");
  }

  tick() { this.update(); }
}

const order = (run) => (["running", "starting"].includes(run.state) ? 0 : 1);

/** A value of the run's main metric, with its name unless it is accuracy: runs may have different ones. */
const value = (run, of) => (of === null || run.metric.name === "accuracy" ? metricText(run.metric, of) : `${run.metric.label} ${metricText(run.metric, of)}`);

class RunRow {
  constructor() {
    this.chip = el("span");
    this.link = el("a");
    this.error = el("small", { class: "wrong" });
    this.bar = el("progress", { "aria-label": "rounds done" });
    this.round = el("span");
    this.cells = Object.fromEntries(["method", "data", "validation", "test", "bytes", "time"].map((name) => [name, el("td")]));
    this.cells.method.className = "name wide";
    this.cells.data.className = "name minor";
    for (const name of ["test", "bytes", "time"]) this.cells[name].className = "minor";
    this.buttons = new Buttons();
    this.row = el("tr", {}, el("td", { class: "name" }, this.chip),
      el("td", { class: "name wide" }, this.link, el("div", {}, this.error), this.buttons.element), this.cells.method, this.cells.data,
      el("td", {}, this.round, this.bar), this.cells.validation, this.cells.test, this.cells.bytes, this.cells.time);
  }

  update(run) {
    chip(this.chip, run.state);
    say(this.link, run.id);
    this.link.href = address(run.id);
    say(this.error, run.state === "failed" ? run.error ?? "" : "");
    say(this.round, run.round === null ? NOTHING : `${run.round} / ${run.rounds ?? "?"}`);
    this.bar.max = run.rounds || 1;
    this.bar.value = run.round || 0;
    this.bar.hidden = run.state !== "running";
    say(this.cells.method, run.method ?? NOTHING);
    say(this.cells.data, run.data ?? NOTHING);
    say(this.cells.validation, value(run, run.validation));
    say(this.cells.test, value(run, run.test));
    say(this.cells.bytes, size(run.bytes));
    say(this.cells.time, run.time ? ago(Date.now() / 1000 - run.time) : NOTHING);
    this.buttons.update(run);
  }
}
