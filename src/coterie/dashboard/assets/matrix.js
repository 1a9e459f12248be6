// The averaging weights as a matrix on a canvas: a row is a peer, a column a peer it takes from. Any number of peers.

import { clusterColour, colours, fit, onColoursChange } from "./colours.js";
import { el, peerName } from "./format.js";

const SIDE = 10; // pixels for the colours of the clusters

export class MatrixDrawing {
  /** `point` is called with the text of the cell under the pointer. */
  constructor(point) {
    this.canvas = el("canvas", { role: "img" });
    this.element = el("div", { class: "matrix" }, this.canvas);
    this.canvas.addEventListener("pointermove", (event) => point(this.cellAt(event)));
    this.canvas.addEventListener("pointerleave", () => point(""));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    onColoursChange(() => this.draw());
  }

  update(matrix, names) {
    this.matrix = matrix;
    this.names = names;
    this.cells = Uint8Array.from(atob(matrix.cells), (c) => c.charCodeAt(0));
    const thinned = matrix.by > 1 ? `; each cell is the mean of ${matrix.by} × ${matrix.by} peers` : "";
    this.canvas.setAttribute("aria-label", `Matrix of averaging weights in round ${matrix.round}; the full colour is ${matrix.most}${thinned}.`);
    this.draw();
  }

  draw() {
    if (!this.matrix || !this.canvas.isConnected || this.element.hidden) return;
    const { context, width } = fit(this.canvas), { side, clusters } = this.matrix;
    if (!width) return;
    this.unit = (width - SIDE - 1) / side;
    context.imageSmoothingEnabled = false;
    context.drawImage(this.picture(), SIDE, SIDE, this.unit * side, this.unit * side);
    context.strokeStyle = colours().axis;
    context.lineWidth = 1;
    context.strokeRect(SIDE + 0.5, SIDE + 0.5, this.unit * side - 1, this.unit * side - 1);
    const scale = (this.unit * side) / (clusters.length || 1);
    clusters.forEach((cluster, i) => {
      context.fillStyle = clusterColour(cluster);
      context.fillRect(2, SIDE + i * scale, SIDE - 4, Math.ceil(scale));
      context.fillRect(SIDE + i * scale, 2, Math.ceil(scale), SIDE - 4);
    });
  }

  /** One pixel per cell. */
  picture() {
    const { side } = this.matrix, canvas = new OffscreenCanvas(side, side), context = canvas.getContext("2d");
    context.fillStyle = colours().blue;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b] = context.getImageData(0, 0, 1, 1).data, image = context.createImageData(side, side);
    this.cells.forEach((level, i) => image.data.set([r, g, b, level], 4 * i));
    context.putImageData(image, 0, 0);
    return canvas;
  }

  cellAt(event) {
    if (!this.matrix || !this.unit) return "";
    const box = this.canvas.getBoundingClientRect(), { side, by, order, most } = this.matrix;
    const column = Math.floor((event.clientX - box.left - SIDE) / this.unit), row = Math.floor((event.clientY - box.top - SIDE) / this.unit);
    if (row < 0 || column < 0 || row >= side || column >= side) return "";
    const weight = ((this.cells[row * side + column] / 255) * most).toPrecision(2);
    if (by > 1) return `a group of ${by} peers takes ${weight} from another group on average`;
    const [taker, giver] = [order[row], order[column]].map((peer) => peerName(this.names[peer] ?? String(peer)));
    return `${taker} takes ${weight} from ${giver}`;
  }
}
