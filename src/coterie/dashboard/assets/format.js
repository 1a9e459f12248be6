// Formats numbers and creates elements without parsing HTML: names in a run may contain anything.

export const NOTHING = "–";
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

export const percent = (value) => (value === null || value === undefined ? NOTHING : `${fixed(100 * value, 1)}%`);
export const number = (value) => (value === null || value === undefined ? NOTHING : value.toLocaleString("en"));

/** A value of a metric in its unit, like the terminal: a share in percent, three digits of any other number. */
export function metricText(metric, value) {
  if (value === null || value === undefined) return NOTHING;
  if (metric.unit === "%") return percent(value);
  const size = Math.abs(value), text = size >= 1000 && size < 1e9 ? Number(fixed(value, 0)).toLocaleString("en") : threeDigits(value);
  return metric.unit === "label" && metric.label_unit ? `${text} ${metric.label_unit}` : text;
}

/** As many decimals as show three digits. */
function threeDigits(value) {
  const decimals = value ? 2 - Math.floor(Math.log10(Math.abs(value))) : 0;
  return decimals < 0 || decimals > 12 ? `${+value.toPrecision(3)}` : `${+fixed(value, decimals)}`;
}

/** The metric named before "validation" or "test"; accuracy is not named. */
export const ofMetric = (metric, what) => (metric.name === "accuracy" ? what : `${what} ${metric.label}`);

export function size(bytes) {
  if (bytes === null || bytes === undefined) return NOTHING;
  let value = bytes, unit = 0;
  while (value >= 999.5 && unit < UNITS.length - 1) { value /= 1000; unit += 1; }
  const digits = unit === 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
  return `${fixed(value, digits)} ${UNITS[unit]}`;
}

/** Rounds like the terminal: half to even, where toFixed rounds up. */
export function fixed(value, digits) {
  const text = value.toFixed(digits);
  const isHalf = Math.abs(value * 2 ** (digits + 1)) % 2 === 1; // no other halves are exact in binary
  return isHalf && Number(text.at(-1)) % 2 ? (value - Math.sign(value) * 0.5 * 10 ** -digits).toFixed(digits) : text;
}

export function ago(seconds) {
  if (seconds < 5) return "now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} days ago`;
}

/** A peer in a sentence: its name, or "peer" and its number. */
export const peerName = (name) => (/^\d+$/.test(name) ? `peer ${name}` : name);

export const count = (n, thing) => `${number(n)} ${thing}${n === 1 ? "" : "s"}`;

/** An element with attributes (`text` sets its text, `on…` adds a listener) and children. */
export function el(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "text") made.textContent = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Sets the text only if it changed, to avoid needless layout and screen reader output. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function chip(element, state, label = state) {
  say(element, label);
  const kind = `chip ${state.split(" ")[0]}`;
  if (element.className !== kind) element.className = kind;
  return element;
}

/** Announces an event to screen readers; do not call it on every tick. */
export function announce(text) {
  say(document.getElementById("news"), text);
}

/** Table rows that keep their elements across updates, so that the focus is not lost. */
export class Rows {
  constructor(body, make) {
    this.body = body;
    this.make = make; // (key) => { row, update(value) }
    this.known = new Map();
  }

  show(entries) {
    const wanted = new Set(entries.map(([key]) => key));
    for (const [key, entry] of this.known) {
      if (!wanted.has(key)) { entry.row.remove(); this.known.delete(key); }
    }
    let before = null;
    for (const [key, value] of entries) {
      if (!this.known.has(key)) this.known.set(key, this.make(key));
      const entry = this.known.get(key);
      entry.update(value);
      const place = before ? before.nextSibling : this.body.firstChild;
      if (entry.row !== place) this.body.insertBefore(entry.row, place);
      before = entry.row;
    }
  }
}
