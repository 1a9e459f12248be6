// The table of peers: filtered and sorted in the browser, one page at a time, so that it stays fast with many peers.

import { NOTHING, Rows, chip, el, metricText, number, ofMetric, peerName, say, size } from "./format.js";

const PAGE = 50;
const COLUMNS = [
  ["peer", "Peer", (p) => p.number], ["state", "State", (p) => p.state], ["round", "Round", (p) => p.round],
  ["validation", "Validation", (p) => p.validation ?? -Infinity], ["bytes", "Received", (p) => p.bytes],
  ["takes", "Takes most from", (p) => p.takes?.weight ?? -1], ["kind", "Model", (p) => p.kind ?? ""], ["remarks", "Remarks", (p) => p.remarks],
];
const NAMES = new Set(["peer", "state", "takes", "kind", "remarks"]);

export class PeersTable {
  constructor(choose) {
    this.choose = choose;
    this.sort = ["peer", 1];
    this.at = 0;
    this.peers = [];
    this.chosen = null;
    this.body = el("tbody");
    this.rows = new Rows(this.body, (key) => new PeerRow(Number(key), choose));
    this.filter = el("input", { type: "search", id: "peers-filter", placeholder: "name, state, cluster 2", oninput: () => { this.at = 0; this.show(); } });
    this.heads = COLUMNS.map(([key, title]) => el("th", { scope: "col", class: NAMES.has(key) ? "name" : "" },
      el("button", { type: "button", class: "plain", text: title, onclick: () => this.sortBy(key) })));
    this.count = el("span", { class: "soft" });
    this.before = el("button", { type: "button", text: "Previous", onclick: () => this.turn(-1) });
    this.after = el("button", { type: "button", text: "Next", onclick: () => this.turn(1) });
    const table = el("table", {}, el("caption", { class: "hidden", text: "Peers" }), el("thead", {}, el("tr", {}, ...this.heads)), this.body);
    this.element = el("section", { class: "card", "aria-label": "Peers" },
      el("header", {}, el("h2", { text: "Peers" }), el("div", { class: "buttons" }, el("label", { for: "peers-filter", text: "Filter" }), this.filter)),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Table of peers" }, table),
      el("div", { class: "buttons" }, this.before, this.after, this.count));
  }

  update(peers, about, chosen) {
    this.chosen = chosen;
    const metric = about.metrics[0];
    say(this.heads[COLUMNS.findIndex(([key]) => key === "validation")].firstChild, ofMetric(metric, "Validation"));
    this.peers = Object.entries(peers).map(([key, peer]) => ({
      ...peer, metric, number: Number(key), kind: about.architectures?.[key], cluster: about.clusters?.[key],
    }));
    this.show();
  }

  sortBy(key) {
    this.sort = [key, this.sort[0] === key ? -this.sort[1] : 1];
    this.at = 0;
    this.show();
  }

  turn(by) {
    this.at += by;
    this.show();
  }

  show() {
    const wanted = this.filter.value.toLowerCase().trim();
    const matches = wanted ? this.peers.filter((p) => text(p).includes(wanted)) : [...this.peers];
    const [key, direction] = this.sort, value = COLUMNS.find((column) => column[0] === key)[2];
    matches.sort((a, b) => { const x = value(a), y = value(b); return (x < y ? -direction : x > y ? direction : 0) || a.number - b.number; });
    const pages = Math.max(1, Math.ceil(matches.length / PAGE));
    this.at = Math.max(0, Math.min(this.at, pages - 1));
    const part = matches.slice(this.at * PAGE, (this.at + 1) * PAGE);
    this.rows.show(part.map((peer) => [String(peer.number), { ...peer, chosen: peer.number === this.chosen }]));
    this.heads.forEach((head, i) => {
      if (COLUMNS[i][0] === key) head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
    const first = matches.length ? this.at * PAGE + 1 : 0;
    say(this.count, `${number(first)} to ${number(this.at * PAGE + part.length)} of ${number(matches.length)}${wanted ? ` matching, ${number(this.peers.length)} in all` : ""}`);
    this.before.disabled = this.at === 0;
    this.after.disabled = this.at >= pages - 1;
    this.before.hidden = this.after.hidden = pages === 1;
  }
}

const text = (p) => [p.name, p.state, p.detail, p.remarks, p.kind, p.cluster === undefined ? "" : `cluster ${p.cluster}`].join(" ").toLowerCase();

/** The peers that a peer takes most from; if many share the largest weight, only their number. */
function favourites(takes) {
  if (!takes) return NOTHING;
  const weight = takes.weight.toFixed(2);
  if (takes.of === 1) return `${takes.who[0]} (${weight})`;
  return takes.of <= takes.who.length ? `${takes.who.join(", ")} (${weight} each)` : `${takes.of} peers (${weight} each)`;
}

class PeerRow {
  constructor(peer, choose) {
    this.button = el("button", { type: "button", class: "plain link-like", onclick: () => choose(peer) });
    this.cluster = el("span", { class: "dots" });
    this.chip = el("span");
    this.detail = el("small");
    this.cells = Object.fromEntries(["round", "validation", "bytes", "takes", "kind", "remarks"].map((name) => [name, el("td")]));
    this.cells.takes.className = this.cells.kind.className = "name";
    this.cells.remarks.className = "name wide";
    this.row = el("tr", {}, el("td", { class: "name" }, this.button, this.cluster), el("td", { class: "name wide" }, this.chip, " ", this.detail), ...Object.values(this.cells));
  }

  update(peer) {
    say(this.button, peerName(peer.name));
    this.button.setAttribute("aria-pressed", peer.chosen);
    this.row.className = peer.chosen ? "chosen" : "";
    this.cluster.hidden = peer.cluster === undefined;
    this.cluster.className = `dots c${(peer.cluster ?? 0) % 12}`;
    this.cluster.title = `true cluster ${peer.cluster}`;
    chip(this.chip, peer.state);
    say(this.detail, peer.detail);
    say(this.cells.round, number(peer.round));
    say(this.cells.validation, metricText(peer.metric, peer.validation));
    say(this.cells.bytes, size(peer.bytes));
    say(this.cells.takes, favourites(peer.takes));
    say(this.cells.kind, peer.kind ?? NOTHING);
    say(this.cells.remarks, peer.remarks);
  }
}
