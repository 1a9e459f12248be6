// A metric over rounds as SVG: the mean, the spread or each peer's line, and the selected peer. Redrawn on new points.

import { metricText } from "./format.js";

const SVG = "http://www.w3.org/2000/svg";
const LEFT = 46, RIGHT = 14, TOP = 12, BOTTOM = 40;

export class MetricChart {
  constructor() {
    this.element = node("svg", { role: "img" });
    this.points = [];
    this.width = 560;
    this.height = 400;
    new ResizeObserver(() => this.fit()).observe(this.element);
    this.chosen = null; // { name, curve: [[round, value], …] }
  }

  /** One unit is one CSS pixel, so that text has the same size on a phone as on a desktop. */
  fit() {
    const { width, height } = this.element.getBoundingClientRect();
    if (!width || (width === this.width && height === this.height)) return;
    [this.width, this.height] = [width, height];
    if (this.metric) this.draw(this.metric, this.points, this.rounds, this.tests);
  }

  /** `points` are those of the metric, sorted by round; `rounds` is the last round of the run. */
  draw(metric, points, rounds, tests) {
    this.metric = metric;
    this.points = points;
    this.tests = tests;
    this.element.setAttribute("viewBox", `0 0 ${this.width} ${this.height}`);
    this.rounds = Math.max(rounds || 1, points.at(-1)?.round ?? 1);
    const values = points.flatMap((p) => [...p.band, p.validation, ...(tests && p.test !== null ? [p.test] : []), ...(p.each ?? [])])
      .concat((this.chosen?.curve ?? []).map(([, value]) => value)).filter((v) => v !== null);
    [this.low, this.high] = metric.unit === "%" ? tenthsAround(values) : withMargin(values);
    const last = points.at(-1), name = `${metric.label[0].toUpperCase()}${metric.label.slice(1)} over rounds`;
    const label = last ? `${name}: mean validation ${metricText(metric, last.validation)} in round ${last.round}` : `${name}: no measurement yet`;
    this.element.setAttribute("aria-label", label);
    this.element.replaceChildren(...this.axes(), ...this.spread(), ...this.lines(tests));
  }

  x(round) { return LEFT + ((round - 1) / Math.max(1, this.rounds - 1)) * (this.width - LEFT - RIGHT); }
  y(value) { return this.height - BOTTOM - ((value - this.low) / (this.high - this.low)) * (this.height - TOP - BOTTOM); }

  tick(value) { return this.metric.unit === "%" ? `${Math.round(100 * value)}%` : `${+value.toPrecision(4)}`; }

  axes() {
    const parts = [];
    for (const value of ticks(this.low, this.high, 5)) {
      parts.push(node("path", { class: "grid", d: `M${LEFT} ${this.y(value)}H${this.width - RIGHT}` }), text(LEFT - 7, this.y(value) + 4, this.tick(value), "end"));
    }
    for (const round of ticks(1, this.rounds, 6, true)) parts.push(text(this.x(round), this.height - BOTTOM + 17, round.toLocaleString("en")));
    parts.push(node("path", { class: "axis", d: `M${LEFT} ${this.height - BOTTOM}H${this.width - RIGHT}` }), text((LEFT + this.width - RIGHT) / 2, this.height - 4, "round"));
    return parts;
  }

  spread() {
    const points = this.points;
    if (points[0]?.each) {
      return points[0].each.map((_, peer) => {
        const there = points.filter((p) => p.each?.[peer] !== null && p.each?.[peer] !== undefined);
        return node("path", { class: `line peer validation${points[0].each.length > 20 ? " crowd" : ""}`, d: this.path(there.map((p) => [p.round, p.each[peer]])) });
      });
    }
    return [[0, 3], [1, 2]].filter(() => points.length > 1).map(([a, b]) => {
      const up = points.map((p) => [p.round, p.band[b]]), down = points.map((p) => [p.round, p.band[a]]).reverse();
      return node("path", { class: "band validation", d: `${this.path(up)}L${this.path(down).slice(1)}Z` });
    });
  }

  lines(tests) {
    const lines = [["validation", this.points.map((p) => [p.round, p.validation])]];
    if (tests) lines.unshift(["test", this.points.filter((p) => p.test !== null).map((p) => [p.round, p.test])]);
    if (this.chosen) lines.push(["c4", this.chosen.curve]);
    return lines.filter(([, line]) => line.length).flatMap(([kind, line]) => {
      const [round, value] = line.at(-1);
      return [node("path", { class: `line mean ${kind}`, d: this.path(line) }), node("circle", { class: `dot ${kind}`, cx: this.x(round), cy: this.y(value), r: 4 })];
    });
  }

  path(line) {
    return line.length ? "M" + line.map(([round, value]) => `${this.x(round).toFixed(1)} ${this.y(value).toFixed(1)}`).join("L") : "";
  }

  /** The measured round nearest to a position on the screen. */
  nearest(clientX) {
    const box = this.element.getBoundingClientRect();
    const round = 1 + (((clientX - box.left) / box.width) * this.width - LEFT) / (this.width - LEFT - RIGHT) * (this.rounds - 1);
    return this.points.reduce((best, p) => (!best || Math.abs(p.round - round) < Math.abs(best.round - round) ? p : best), null);
  }
}

/** Whole tenths around shares. */
function tenthsAround(values) {
  const low = values.length ? Math.floor(Math.min(...values) * 10 + 1e-6) / 10 : 0;
  const high = values.length ? Math.ceil(Math.max(...values) * 10 - 1e-6) / 10 : 1;
  return high > low ? [low, high] : [Math.max(0, low - 0.1), Math.min(1, high + 0.1)];
}

/** Slightly beyond the values, but not below zero where none is. */
function withMargin(values) {
  if (!values.length) return [0, 1];
  const low = Math.min(...values), high = Math.max(...values);
  const margin = 0.05 * (high - low) || 0.1 * Math.abs(high) || 1;
  return [low >= 0 ? Math.max(0, low - margin) : low - margin, high + margin];
}

function ticks(low, high, about, whole = false) {
  if (high <= low) return [low];
  const raw = (high - low) / about, power = 10 ** Math.floor(Math.log10(raw));
  let step = [1, 2, 5, 10].map((m) => m * power).find((s) => s >= raw * (1 - 1e-9));
  if (whole) step = Math.max(1, step);
  const values = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) values.push(i * step);
  return values;
}

function node(name, attributes) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

function text(x, y, what, anchor = "middle") {
  const made = node("text", { x, y, "text-anchor": anchor });
  made.textContent = what;
  return made;
}
