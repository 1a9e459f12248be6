// A spring layout for the nodes of a graph. Nodes start on a circle, in order, and move a little at a time, so that the
// eye can follow them while connected peers drift together. A little deterministic noise, which cools down, frees nodes
// stuck between unrelated ones.

const REPULSION = 0.012, ATTRACTION = 0.3, CENTRE = 0.02, LARGEST_STEP = 0.04, NOISE = 0.03;

export class Layout {
  constructor(count) {
    this.count = count;
    this.x = new Float64Array(count);
    this.y = new Float64Array(count);
    for (let i = 0; i < count; i++) {
      const angle = (2 * Math.PI * i) / count - Math.PI / 2;
      this.x[i] = 0.8 * Math.cos(angle);
      this.y[i] = 0.8 * Math.sin(angle);
    }
    this.heat = 0;
    this.seed = 1;
    this.ties = [];
  }

  /** `ties` are [from, to, weight]. New ties reheat the layout a little. */
  pull(ties) {
    const most = Math.max(1e-9, ...ties.map((tie) => tie[2]));
    this.ties = ties.map(([a, b, w]) => [a, b, w / most]);
    this.degree = new Float64Array(this.count);
    for (const [a, b, w] of this.ties) { this.degree[a] += w; this.degree[b] += w; }
    this.heat = Math.max(this.heat, 0.7);
  }

  noise() {
    this.seed = (this.seed * 48271) % 2147483647;
    return NOISE * this.heat * (this.seed / 1073741823.5 - 1);
  }

  get moving() { return this.heat > 0.02; }

  step() {
    const { x, y, count } = this, dx = new Float64Array(count), dy = new Float64Array(count);
    const push = (REPULSION * 24) / Math.max(8, count);
    for (let i = 0; i < count; i++) {
      for (let j = 0; j < i; j++) {
        const ux = x[i] - x[j], uy = y[i] - y[j], far = ux * ux + uy * uy + 1e-4, force = push / far;
        dx[i] += ux * force; dy[i] += uy * force; dx[j] -= ux * force; dy[j] -= uy * force;
      }
      dx[i] += this.noise() - CENTRE * x[i] * 4; dy[i] += this.noise() - CENTRE * y[i] * 4;
    }
    for (const [a, b, w] of this.ties) {
      const force = (ATTRACTION * w) / Math.max(2, this.degree[a], this.degree[b]); // the same pull for many ties and for few
      const ux = (x[b] - x[a]) * force, uy = (y[b] - y[a]) * force;
      dx[a] += ux; dy[a] += uy; dx[b] -= ux; dy[b] -= uy;
    }
    for (let i = 0; i < count; i++) {
      const length = Math.hypot(dx[i], dy[i]), most = LARGEST_STEP * this.heat, scale = length > most ? most / length : 1;
      x[i] += dx[i] * scale; y[i] += dy[i] * scale;
    }
    this.heat *= 0.985;
  }
}
