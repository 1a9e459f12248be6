// One run: its figures, curves of its metrics, graph, peers, sent artifacts and errors.

import { MetricChart } from "./chart.js";
import { Buttons } from "./control.js";
import { Rows, announce, chip, count, el, metricText, number, peerName, say, size } from "./format.js";
import { GraphDrawing } from "./graph.js";
import { Leaving } from "./leaving.js";
import { MatrixDrawing } from "./matrix.js";
import { PeersTable } from "./peers_table.js";

const IT = "it";

export class RunPage {
  constructor(stream, id, control) {
    Object.assign(this, { stream, id, control, chosen: null, shown: null, details: null, was: {} });
    this.chip = el("span");
    this.title = el("h1", { text: id });
    this.facts = el("p", { class: "soft" });
    this.report = el("a", { href: `/report?run=${encodeURIComponent(id)}`, target: "_blank", rel: "noopener", text: "Open the report", hidden: true });
    this.buttons = new Buttons();
    this.reading = el("progress", { "aria-label": "share of the events read", hidden: true });
    this.tiles = Object.fromEntries(["round", "validation", "test", "bytes", "peers"].map((key) => [key, new Tile(key === "round")]));
    this.errors = new Errors();
    this.chart = new MetricChart();
    this.keys = el("p", { class: "soft" });
    this.readout = el("p", { class: "soft readout" });
    this.chart.element.addEventListener("pointermove", (event) => this.point(event));
    this.chart.element.addEventListener("pointerleave", () => say(this.readout, ""));
    this.graph = new GraphDrawing((peer) => this.choose(peer));
    this.cell = el("p", { class: "soft readout" });
    this.matrix = new MatrixDrawing((text) => say(this.cell, text));
    this.peers = new PeersTable((peer) => this.choose(peer));
    this.leaving = new Leaving();
    this.element = el("div", {}, el("a", { class: "back", href: "#/", text: "← All runs" }),
      el("div", { class: "head" }, this.title, this.chip, this.report, this.buttons.element), this.facts, this.reading,
      el("dl", { class: "tiles" }, ...Object.values(this.tiles).map((tile) => tile.element)), this.errors.element,
      el("div", { class: "two" }, this.metricCard(), this.graphCard()), this.peers.element, this.leaving.element);
  }

  metricCard() {
    this.heading = el("h2");
    this.choice = el("select", { id: "metric", onchange: () => { this.shown = this.choice.value; this.showChart(this.get("about")); } });
    this.choosing = el("div", { class: "buttons", hidden: true }, el("label", { for: "metric", text: "Metric" }), this.choice);
    return el("section", { class: "card", "aria-label": "Metric over rounds" }, el("header", {}, this.heading, this.choosing), this.keys,
      el("figure", { class: "chart" }, this.chart.element, this.readout));
  }

  graphCard() {
    this.switches = ["Drawing", "Matrix"].map((name) => el("button", { type: "button", text: name, onclick: () => this.show(name) }));
    this.graphText = el("p", { class: "soft" });
    this.show("Drawing");
    return el("section", { class: "card", "aria-label": "Collaboration graph" },
      el("header", {}, el("h2", { text: "Collaboration graph" }), el("div", { class: "buttons" }, ...this.switches)),
      el("figure", {}, this.graph.element, this.matrix.element, this.cell), this.graphText);
  }

  show(name) {
    this.graph.element.hidden = name !== "Drawing";
    this.matrix.element.hidden = name !== "Matrix";
    this.switches.forEach((button) => button.setAttribute("aria-pressed", button.textContent === name));
    this.graph.draw();
    this.matrix.draw();
  }

  get(section) { return this.stream.run[section]?.[IT]; }

  update(changed) {
    const row = this.stream.runs[this.id];
    if (row) {
      chip(this.chip, row.state);
      this.buttons.update(row);
      this.report.hidden = !row.report;
    }
    if (this.stream.missing) { say(this.facts, row?.error || "There is no such run in this folder (yet)."); return; }
    const about = this.get("about"), figures = this.get("figures");
    if (!about || !figures) return;
    const any = (...sections) => changed.has("anew") || sections.some((section) => changed.has(section));
    if (any("about", "figures", "points", "peers")) this.showFigures(about, figures);
    if (any("points", "about")) this.showChart(about);
    if (any("ties", "places", "matrix", "about", "peers")) this.showGraph(about);
    if (any("peers", "about")) this.peers.update(this.stream.run.peers ?? {}, about, this.chosen);
    if (any("leaving")) this.leaving.update(this.get("leaving"));
    if (any("errors")) this.errors.update(this.get("errors"));
    if (any("peers")) this.announcePeers();
    if (this.chosen !== null && any("points", "leaving")) this.ask();
  }

  showFigures(about, figures) {
    const kind = { simulation: "simulation", circle: "real peers on this machine", peer: "one real peer" }[about.kind];
    say(this.facts, [kind, about.method, about.data, about.partition, about.seed === null ? "" : `seed ${about.seed}`].filter(Boolean).join(" · "));
    this.reading.hidden = figures.read >= 1;
    this.reading.value = figures.read;
    const points = this.points(), last = points.at(-1);
    const ahead = figures.ahead > figures.round ? `the fastest peer is in round ${figures.ahead}` : "";
    this.tiles.round.show("Round", `${number(figures.round)} / ${number(figures.rounds)}`, ahead, figures.round / (figures.rounds || 1));
    const main = about.metrics[0], text = (value) => metricText(main, value);
    this.tiles.validation.show(`Mean validation ${main.label}`, text(last?.validation), last ? `round ${last.round}, ${count(last.of, "peer")}` : "not measured yet");
    this.tiles.test.element.hidden = !figures.selected;
    if (figures.selected) this.tiles.test.show(`Mean test ${main.label}`, text(figures.selected.last), `${text(figures.selected.selected)} selected by validation`);
    this.tiles.bytes.show("Exchanged", size(figures.bytes), count(figures.messages, "message"));
    const silent = figures.silent_for ? `no sign of life for ${figures.silent_for} s` : figures.gone ? `${figures.gone} gone or stopped` : ["killed", "failed"].includes(figures.state) ? "" : "all present";
    const clusters = about.clusters.length ? `${new Set(about.clusters).size} true clusters` : "";
    this.tiles.peers.show("Peers", number(about.peers), [silent, clusters].filter(Boolean).join("; "));
  }

  points() {
    return Object.values(this.stream.run.points ?? {}).sort((a, b) => a.round - b.round);
  }

  /** The metric in the chart: the main one, or the chosen one. */
  metric(about) { return about.metrics.find((metric) => metric.name === this.shown) ?? about.metrics[0]; }

  /** The points of one metric, where some peer has a value. */
  pointsOf(metric, about) {
    const points = this.points();
    if (metric.name === about.metrics[0].name) return points.filter((p) => p.of);
    return points.filter((p) => p.others[metric.name]).map((p) => ({ ...p.others[metric.name], round: p.round }));
  }

  showChoice(about, metric) {
    say(this.heading, `${metric.label[0].toUpperCase()}${metric.label.slice(1)} over rounds`);
    this.choosing.hidden = about.metrics.length < 2;
    const names = about.metrics.map((one) => one.name).join();
    if (this.choice.dataset.names !== names) {
      this.choice.replaceChildren(...about.metrics.map((one) => el("option", { value: one.name, text: one.label })));
      this.choice.dataset.names = names;
    }
    this.choice.value = metric.name;
  }

  showChart(about) {
    const metric = this.metric(about), points = this.pointsOf(metric, about), each = Boolean(points[0]?.each);
    this.showChoice(about, metric);
    const chosen = this.details && { name: this.details.name, curve: this.details.curves[metric.name] ?? [] };
    this.chart.chosen = chosen ?? null;
    this.chart.draw(metric, points, about.rounds, true);
    const key = (kind, text) => [el("span", { class: `key ${kind}` }), text];
    this.keys.replaceChildren(...key("validation", "validation, mean"), ...key("test", "test, mean"),
      ...(each ? key("validation peer", "each peer") : [` · bands: middle 50% and 80% of peers`]), ...(chosen ? key("c4", chosen.name) : []),
      ...(metric.higher_is_better ? [] : [el("span", { text: " · lower is better" })]));
  }

  point(event) {
    const p = this.chart.nearest(event.clientX), text = (value) => metricText(this.chart.metric, value);
    if (p) say(this.readout, `round ${p.round}: validation ${text(p.validation)}, test ${text(p.test)}, middle 80% of peers ${text(p.band[0])} to ${text(p.band[3])}`);
  }

  showGraph(about) {
    const matrix = this.get("matrix"), rows = this.stream.run.ties ?? {}, peers = this.stream.run.peers ?? {};
    this.switches[0].hidden = !about.drawn;
    if (!about.drawn && !this.graph.element.hidden) this.show("Matrix");
    if (!matrix) { say(this.graphText, "No peer has reported averaging weights or neighbours yet. Some methods never do."); }
    else {
      const cut = matrix.by > 1 ? ` Each cell is the mean of ${matrix.by} × ${matrix.by} peers.` : "";
      const drawn = about.drawn && about.peers > 40 ? " The drawing shows each peer's 8 strongest ties; the matrix shows all." : "";
      say(this.graphText, `Weights of each peer's last round, up to round ${matrix.round}; the full colour is ${matrix.most.toPrecision(2)}.${cut}${drawn}`
        + (about.clusters.length ? " Colours show the true clusters, which the peers do not know." : ""));
      this.matrix.update(matrix, about.names);
    }
    const absent = about.kind === "simulation" ? ["gone"] : ["gone", "stopped"]; // in a stopped simulation no peer is lost
    const gone = new Set(Object.entries(peers).filter(([, peer]) => absent.includes(peer.state)).map(([key]) => Number(key)));
    if (about.drawn && about.peers) this.graph.update({ rows, places: this.get("places") ?? [], clusters: about.clusters, names: about.names, gone, chosen: this.chosen });
  }

  choose(peer) {
    this.chosen = this.chosen === peer ? null : peer;
    this.details = null;
    this.leaving.one.update("", null);
    this.update(new Set(["peers", "points"]));
  }

  /** The selected peer's curves and sent artifacts are fetched on demand. */
  async ask() {
    const peer = this.chosen;
    const answer = await fetch(`/api/peer?run=${encodeURIComponent(this.id)}&peer=${peer}`).catch(() => null);
    if (!answer?.ok || this.chosen !== peer) return;
    const details = await answer.json(), name = this.stream.run.peers?.[peer]?.name ?? String(peer);
    this.details = { name: peerName(name), curves: details.curves };
    this.showChart(this.get("about"));
    this.leaving.one.update(name, details.left);
  }

  /** Announces peers that go or come back, but no other changes. */
  announcePeers() {
    const now = Object.fromEntries(Object.entries(this.stream.run.peers ?? {}).map(([key, peer]) => [key, peer.state === "gone" ? "is gone" : "is back"]));
    const changed = Object.keys(now).filter((key) => this.was[key] && this.was[key] !== now[key]);
    if (changed.length) announce(changed.slice(0, 5).map((key) => `${this.stream.run.peers[key].name} ${now[key]}`).join(". "));
    this.was = now;
  }
}

class Tile {
  constructor(progress) {
    [this.name, this.value, this.more] = [el("dt"), el("b"), el("small")];
    this.bar = progress ? el("progress", { "aria-label": "finished rounds" }) : null;
    this.element = el("div", {}, this.name, el("dd", {}, this.value, this.bar, this.more));
  }

  show(name, value, more, share) {
    say(this.name, name);
    say(this.value, value);
    say(this.more, more);
    if (this.bar) this.bar.value = share || 0;
  }
}

class Errors {
  constructor() {
    this.list = el("ul");
    this.rows = new Rows(this.list, () => {
      const [head, text, more] = [el("b"), el("span"), el("pre")];
      const details = el("details", {}, el("summary", { text: "more" }), more);
      return { row: el("li", {}, head, " ", text, details), update: (e) => { say(head, e.head); say(text, e.text); say(more, e.more); details.hidden = !e.more; } };
    });
    this.element = el("section", { class: "card errors", "aria-label": "Errors", hidden: true }, el("header", {}, el("h2", { text: "Errors" })), this.list);
  }

  update(errors) {
    this.element.hidden = !errors.length;
    this.rows.show(errors.map((error, i) => [`${i}`, error]));
  }
}
