/* Line charts: a tooltip names the line under the pointer or with the focus. */

const REACH = 14; // largest distance from the pointer to a line, in units of the drawing

function readLine(path) {
  const points = path.getAttribute("d").slice(1).split("L").map((point) => point.split(" ").map(Number));
  return { path, name: path.dataset.name, points };
}

/* The point of a line nearest to x; the last one on a tie. */
function nearestAlong(points, x) {
  let low = 0;
  let high = points.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (points[middle][0] <= x) low = middle;
    else high = middle;
  }
  return Math.abs(points[low][0] - x) < Math.abs(points[high][0] - x) ? points[low] : points[high];
}

/* A number of bytes in a readable unit. */
function inBytes(amount) {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let unit = 0;
  while (amount >= 999.5 && unit < units.length - 1) { amount /= 1000; unit++; }
  return `${unit ? +amount.toPrecision(3) : Math.round(amount)} ${units[unit]}`;
}

function chart(drawing) {
  const [left, bottom, right, top] = drawing.dataset.box.split(" ").map(Number);
  const [x0, x1, y0, y1] = drawing.dataset.ends.split(" ").map(Number);
  const paths = [...drawing.querySelectorAll("path.line[data-name]")];
  let lines = null; // read lazily
  const tip = svgElement("g", { class: "tip" });
  drawing.append(tip);

  function valueAt([x, y]) {
    const across = x0 + ((x - left) / (right - left)) * (x1 - x0);
    const up = y0 + ((y - bottom) / (top - bottom)) * (y1 - y0);
    const value = "shares" in drawing.dataset ? `${(100 * up).toFixed(1)}%` : `${+up.toPrecision(3)}`;
    if ("bytes" in drawing.dataset) return `${value} at ${inBytes(across < drawing.dataset.bytes - 1e-6 ? 0 : 10 ** across)}`;
    return `${value} at ${drawing.dataset.x.split(",")[0]} ${+across.toPrecision(4)}`;
  }

  function showTip(name, point) {
    tip.replaceChildren();
    if (!name) return;
    const [x, y] = point;
    const middle = (left + right) / 2;
    const anchor = x > middle ? "end" : "start";
    const above = y > top + 30 ? y - 10 : y + 20;
    tip.append(svgElement("circle", { class: "spot", cx: x, cy: y, r: 4 }));
    const text = svgElement("text", { x, y: above, "text-anchor": anchor, class: "said" });
    text.textContent = `${name}: ${valueAt(point)}`;
    tip.append(text);
  }

  drawing.addEventListener("pointermove", (event) => {
    lines ??= paths.map(readLine);
    const place = new DOMPoint(event.clientX, event.clientY).matrixTransform(drawing.getScreenCTM().inverse());
    let best = { off: REACH };
    for (const line of lines) {
      const point = nearestAlong(line.points, place.x);
      const off = Math.hypot(Math.max(0, Math.abs(point[0] - place.x) - REACH), point[1] - place.y);
      if (off < best.off) best = { off, line, point };
    }
    hover(best.line?.path ?? null);
    showTip(best.line?.name ?? "", best.point);
  });
  drawing.addEventListener("pointerleave", () => { hover(null); showTip(""); });

  let hovered = null;
  function hover(path) {
    hovered?.classList.remove("hovered");
    hovered = path;
    hovered?.classList.add("hovered");
  }

  /* One tab stop per chart; the arrow keys move from line to line. */
  if (!paths.length) return;
  drawing.setAttribute("role", "group");
  for (const child of drawing.children) {
    if (!child.dataset.name) child.setAttribute("aria-hidden", "true");
  }
  const end = (path) => readLine(path).points.at(-1);
  for (const path of paths) {
    path.setAttribute("role", "img");
    path.setAttribute("aria-label", `${path.dataset.name}, ${valueAt(end(path))}`);
    path.setAttribute("tabindex", "-1");
    path.addEventListener("focus", () => { hover(path); showTip(path.dataset.name, end(path)); });
    path.addEventListener("blur", () => { hover(null); showTip(""); });
  }
  paths.at(-1).setAttribute("tabindex", "0"); // the mean, where there is one
  drawing.addEventListener("keydown", (event) => {
    const at = paths.indexOf(event.target);
    const to = { ArrowDown: at - 1, ArrowUp: at + 1, Home: 0, End: paths.length - 1 }[event.key];
    if (at < 0 || (to === undefined && event.key !== "Enter")) return;
    event.preventDefault();
    if (event.key === "Enter") pick(paths[at].dataset.name === picked ? "" : paths[at].dataset.name);
    else {
      paths[at].setAttribute("tabindex", "-1");
      const next = paths[(to + paths.length) % paths.length];
      next.setAttribute("tabindex", "0");
      next.focus();
    }
  });
}

for (const drawing of drawings) if (drawing.dataset.box) chart(drawing);
