// The colours of the style sheet for canvases, read again when the page switches between light and dark.

const CLUSTER_COLOURS = 12;
let known = null;
const listeners = new Set();

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  known = null;
  for (const listener of listeners) listener();
});

export function colours() {
  if (!known) {
    const style = getComputedStyle(document.documentElement);
    const read = (name) => style.getPropertyValue(`--${name}`).trim();
    known = Object.fromEntries(["ink", "soft", "card", "grid", "axis", "blue", "bad", "page"].map((name) => [name, read(name)]));
    known.clusters = Array.from({ length: CLUSTER_COLOURS }, (_, i) => read(`c${i}`));
  }
  return known;
}

export const clusterColour = (cluster) => colours().clusters[cluster % CLUSTER_COLOURS];
export const onColoursChange = (listener) => listeners.add(listener);

/** Scales a canvas to the screen's resolution; returns its size in CSS pixels. */
export function fit(canvas) {
  const ratio = Math.min(2, devicePixelRatio || 1), { width, height } = canvas.getBoundingClientRect();
  const [w, h] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return { context, width, height };
}
