// The collaboration graph as a drawing on a canvas, for up to about 150 peers. (matrix.js draws any number.)

import { clusterColour, colours, fit, onColoursChange } from "./colours.js";
import { el } from "./format.js";

const EASE = 0.12, CLOSE = 0.002; // of the way to its place that a peer moves in a frame; distance at which it stops

export class GraphDrawing {
  /** `choose` is called with the peer that was clicked. */
  constructor(choose) {
    this.canvas = el("canvas", { role: "img" });
    this.element = el("div", { class: "graph" }, this.canvas);
    this.at = []; // x and y by peer, on the way to their places
    this.places = [];
    this.still = matchMedia("(prefers-reduced-motion: reduce)");
    this.canvas.addEventListener("click", (event) => { const peer = this.peerAt(event); if (peer !== null) choose(peer); });
    this.canvas.addEventListener("pointermove", (event) => { this.canvas.style.cursor = this.peerAt(event) === null ? "" : "pointer"; });
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    onColoursChange(() => this.draw());
  }

  /** `rows` by peer: [[other, weight], …]; `places` by peer: [x, y]; `names` by peer, or none; `gone` and `chosen` are peers. */
  update({ rows, places, clusters, names, gone, chosen }) {
    this.ties = Object.entries(rows).flatMap(([peer, row]) => row.map(([other, weight]) => [Number(peer), other, weight]));
    Object.assign(this, { places, clusters, names, gone, chosen });
    if (this.at.length !== places.length || this.still.matches) this.at = places.map((place) => [...place]);
    const known = clusters.length ? `, in ${new Set(clusters).size} true clusters` : "";
    this.canvas.setAttribute("aria-label", `Drawing of ${places.length} peers${known} and ${this.ties.length} ties. The table of peers lists which peers each takes most from.`);
    this.move();
  }

  /** Peers glide to their places, so that the eye can follow them. */
  move() {
    if (this.frame) return;
    const next = () => {
      this.frame = 0;
      if (!this.canvas.isConnected || this.element.hidden) return;
      let far = 0;
      this.at.forEach((at, peer) => [0, 1].forEach((axis) => {
        const way = this.places[peer][axis] - at[axis];
        far = Math.max(far, Math.abs(way));
        at[axis] += EASE * way;
      }));
      this.draw();
      if (far > CLOSE) this.frame = requestAnimationFrame(next);
    };
    this.frame = requestAnimationFrame(next);
  }

  draw() {
    if (!this.at.length || !this.canvas.isConnected || this.element.hidden) return;
    const { context, width, height } = fit(this.canvas), { ties } = this;
    if (!width) return;
    this.spread(width, height);
    const most = Math.max(1e-9, ...ties.map((tie) => tie[2]));
    const crowd = Math.sqrt(Math.min(1, 60 / Math.max(1, ties.length))); // many lines are faint so that they do not hide each other
    for (const [a, b, weight] of ties) {
      const highlighted = this.chosen === a || this.chosen === b;
      const sameCluster = this.clusters.length && this.clusters[a] === this.clusters[b];
      context.globalAlpha = highlighted ? 0.9 : Math.max(0.03, (0.05 + 0.95 * (weight / most) ** 1.5) * crowd * (this.chosen === null ? 1 : 0.35));
      context.strokeStyle = highlighted ? colours().ink : sameCluster ? clusterColour(this.clusters[a]) : colours().soft;
      context.lineWidth = highlighted ? 1.5 : 0.5 + 1.5 * (weight / most);
      context.beginPath();
      context.moveTo(this.px[a], this.py[a]);
      context.lineTo(this.px[b], this.py[b]);
      context.stroke();
    }
    context.globalAlpha = 1;
    for (let peer = 0; peer < this.at.length; peer++) this.node(context, peer);
  }

  /** Maps the positions to the whole canvas, with a margin. */
  spread(width, height) {
    const [x, y] = [0, 1].map((axis) => this.at.map((at) => at[axis])), edge = 22;
    const [left, right, top, bottom] = [Math.min(...x), Math.max(...x), Math.min(...y), Math.max(...y)];
    const scale = Math.min((width - 2 * edge) / Math.max(0.6, right - left), (height - 2 * edge) / Math.max(0.6, bottom - top));
    this.radius = Math.max(4, Math.min(13, 70 / Math.sqrt(this.at.length)));
    this.px = x.map((v) => width / 2 + (v - (left + right) / 2) * scale);
    this.py = y.map((v) => height / 2 + (v - (top + bottom) / 2) * scale);
  }

  node(context, peer) {
    const colour = this.clusters.length ? clusterColour(this.clusters[peer]) : colours().blue, gone = this.gone.has(peer);
    context.beginPath();
    context.arc(this.px[peer], this.py[peer], this.radius, 0, 2 * Math.PI);
    context.fillStyle = gone ? colours().card : colour;
    context.fill();
    context.setLineDash(gone ? [3, 3] : []);
    context.lineWidth = this.chosen === peer ? 3 : 1.5;
    context.strokeStyle = this.chosen === peer ? colours().ink : gone ? colours().bad : colours().card;
    context.stroke();
    context.setLineDash([]);
    if (this.radius < 8) return;
    context.fillStyle = gone ? colours().bad : colours().card;
    context.font = `600 ${Math.round(this.radius * 0.95)}px system-ui, sans-serif`;
    context.textAlign = "center";
    context.textBaseline = "middle";
    const name = this.names[peer];
    if (name === undefined) return void context.fillText(String(peer), this.px[peer], this.py[peer] + 0.5);
    context.fillStyle = colours().ink;
    context.font = "11px system-ui, sans-serif";
    context.fillText(name.slice(0, 14), this.px[peer], this.py[peer] + this.radius + 8); // it does not fit into the node
  }

  peerAt(event) {
    if (!this.px) return null;
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const found = this.px.findIndex((px, i) => Math.hypot(px - x, this.py[i] - y) <= this.radius + 3);
    return found < 0 ? null : found;
  }
}
