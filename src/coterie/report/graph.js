/* The collaboration graph: a slider over rounds updates its drawing and its matrix.

   graph_figures.py and matrix.py drew both for the last round, with one path for each shade. This script refills these
   paths for another round, by the same rules. */

const BEND = 0.12;
const STEP = matchMedia("(prefers-reduced-motion: reduce)").matches ? 1000 : 200; // milliseconds, while it plays

const graphSection = document.querySelector("section.graph");
if (graphSection && data.graph) showGraph(graphSection, data.graph);

function showGraph(section, graph) {
  const [drawing, matrix] = section.querySelectorAll(".drawing > svg");
  const edgePaths = [...drawing.querySelectorAll(".edges path")];
  const cellPaths = [...matrix.querySelectorAll(".cells path")];
  const count = graph.peers.length;
  const placeOf = new Map(graph.peers.map((peer, i) => [data.names[peer], i]));
  let kind = graph.kinds[0];
  let at = kind.frames.length - 1;

  /* ---- drawing ---- */

  const shadeOf = (share) => Math.ceil((share * edgePaths.length) / 100 - 1e-9);
  const short = (value) => +value.toFixed(2);

  function entries([, steps, shares]) {
    let cell = 0;
    return steps.map((step, i) => [(cell += step), shares[i]]);
  }

  function edge(from, to) {
    const [x, y] = graph.places[from];
    const [toX, toY] = graph.places[to];
    const middle = [(x + toX) / 2 + BEND * (toY - y), (y + toY) / 2 - BEND * (toX - x)];
    return `M${short(x)} ${short(y)}Q${short(middle[0])} ${short(middle[1])} ${short(toX)} ${short(toY)}`;
  }

  function fill(paths, strokes) {
    paths.forEach((path, i) => path.setAttribute("d", strokes[i + 1].join("")));
  }

  const none = (paths) => Array.from({ length: paths.length + 1 }, () => []);

  function drawEdges(shown) {
    const strokes = none(edgePaths);
    for (const [cell, share] of shown) strokes[shadeOf(share)].push(edge(Math.floor(cell / count), cell % count));
    fill(edgePaths, strokes);
  }

  function drawCells(shown) {
    const side = Math.min(count, Math.ceil(count / Math.ceil(count / 200)));
    const strokes = none(cellPaths);
    let run = null; // neighbouring cells of a row in one shade are one stroke
    const end = () => { if (run) strokes[run.shade].push(`M${run.x} ${run.y}.5h${run.length}`); };
    for (const [cell, share] of shown) {
      const shade = shadeOf(share);
      const x = cell % side;
      if (run && cell === run.last + 1 && x > 0 && shade === run.shade) {
        run.length += 1;
        run.last = cell;
      } else {
        end();
        run = { x, y: Math.floor(cell / side), length: 1, shade, last: cell };
      }
    }
    end();
    fill(cellPaths, strokes);
  }

  /* The labels of the colour bar. */
  function drawScale({ what, numbers }) {
    const bar = matrix.querySelector(".scale");
    const text = (share, label) => {
      const made = svgElement("text", { x: 16, y: short(bar.dataset.height * (1 - share) + 4), "text-anchor": "start" });
      made.textContent = label;
      return made;
    };
    bar.querySelector(".numbers").replaceChildren(...numbers.map(([share, label]) => text(share, label)));
    bar.querySelector(".what").textContent = what;
  }

  const own = drawing.querySelector(".own");
  const status = element("p", { className: "soft said-of-graph" });
  status.setAttribute("role", "status");

  function drawOwn(shown) {
    own.replaceChildren();
    matrix.querySelector(".cross")?.remove();
    const peer = placeOf.get(picked);
    if (peer === undefined) {
      status.textContent = "Highlight a peer to see which peers it takes from, and which take from it.";
      return;
    }
    const takes = shown.filter(([cell]) => Math.floor(cell / count) === peer);
    const gives = shown.filter(([cell]) => cell % count === peer);
    const paths = { takes: takes.map(([c]) => edge(peer, c % count)), gives: gives.map(([c]) => edge(Math.floor(c / count), peer)) };
    for (const [css, strokes] of Object.entries(paths)) own.append(svgElement("path", { class: css, d: strokes.join("") }));
    const unit = 400 / count;
    const cross = `M0 ${peer * unit}h400v${unit}h-400zM${peer * unit} 0v400h${unit}v-400z`;
    matrix.querySelector("g").append(svgElement("path", { class: "cross", d: cross }));
    const named = (cell, share) => `${graph.peers[cell]}${kind.weighed ? ` (${weight(share)})` : ""}`;
    const from = takes.map(([c, s]) => named(c % count, s)).join(", ") || "no peer";
    const to = gives.map(([c]) => graph.peers[Math.floor(c / count)]).join(", ") || "no peers";
    status.textContent = `${picked} in round ${kind.frames[at][0]} takes from ${from} (solid); ${to} take from it (dashed).`;
  }

  const weight = (share) => ((share / 100) * kind.most).toPrecision(2);

  function draw() {
    const shown = entries(kind.frames[at]);
    const round = kind.frames[at][0];
    drawEdges(shown);
    drawCells(kind.cells ? entries(kind.cells[at]) : shown);
    drawScale(kind.scale);
    drawOwn(shown);
    name(drawing, `The graph of round ${round}: ${shown.length} ${kind.name.toLowerCase()} between ${count} peers`);
    name(matrix, `The matrix of round ${round}: ${kind.name.toLowerCase()}`);
    where.textContent = `round ${round}`;
    slider.value = at;
    slider.setAttribute("aria-valuetext", `round ${round}`);
    if (table.open) fillTable();
  }

  function name(svg, label) {
    svg.setAttribute("aria-label", label);
    svg.querySelector("title").textContent = label;
  }

  /* ---- the controls ---- */

  const slider = element("input", { type: "range", id: "round", min: 0, max: at, step: 1, value: at });
  const where = element("output", { className: "where" });
  where.setAttribute("for", "round");
  slider.addEventListener("input", () => { pause(); at = Number(slider.value); draw(); });

  const play = element("button", { type: "button", textContent: "Play" });
  let timer = null;
  function pause() {
    clearInterval(timer);
    timer = null;
    play.textContent = "Play";
  }
  play.addEventListener("click", () => {
    if (timer) return pause();
    if (at === kind.frames.length - 1) at = 0;
    play.textContent = "Pause";
    draw();
    timer = setInterval(() => {
      if (at >= kind.frames.length - 1) return pause();
      at += 1;
      draw();
    }, Math.max(STEP / 5, Math.min(STEP, 12000 / kind.frames.length)));
  });

  const label = element("label", { className: "slide", textContent: "Round " });
  label.append(slider);
  const controls = section.querySelector(".controls");
  controls.append(play, label, where);
  if (graph.kinds.length > 1) {
    const kinds = element("select", { id: "kind" });
    graph.kinds.forEach((k, i) => kinds.append(element("option", { value: i, textContent: k.name })));
    kinds.addEventListener("change", () => {
      const round = kind.frames[at][0];
      kind = graph.kinds[Number(kinds.value)];
      slider.max = kind.frames.length - 1;
      at = Math.max(0, kind.frames.findLastIndex((frame) => frame[0] <= round));
      draw();
    });
    const showing = element("label", { textContent: "Show " });
    showing.append(kinds);
    controls.append(showing);
  }
  section.querySelector(".pair").before(status);
  pickListeners.push(() => drawOwn(entries(kind.frames[at])));

  /* ---- tooltips of nodes and cells, and a table as an alternative to the pictures ---- */

  for (const node of drawing.querySelectorAll(".node")) {
    const about = data.about[data.names.indexOf(node.dataset.name)];
    const title = svgElement("title");
    title.textContent = [node.dataset.name, about].filter(Boolean).join(", ");
    node.append(title);
  }

  /* A tooltip for the cell of the matrix under the pointer. */
  const cells = matrix.querySelector(".field");
  const tip = svgElement("text", { class: "said tip", x: 200, y: 392, "text-anchor": "middle" });
  matrix.querySelector("g").append(tip);
  matrix.addEventListener("pointermove", (event) => {
    const box = cells.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * count);
    const column = Math.floor(((event.clientX - box.left) / box.width) * count);
    if (Math.min(row, column) < 0 || Math.max(row, column) >= count) return tip.replaceChildren();
    const found = entries(kind.frames[at]).find(([cell]) => cell === row * count + column);
    const amount = !found ? "nothing" : kind.weighed ? weight(found[1]) : "something";
    tip.textContent = `${data.names[graph.peers[row]]} takes ${amount} from ${data.names[graph.peers[column]]}`;
  });
  matrix.addEventListener("pointerleave", () => tip.replaceChildren());

  const body = element("tbody");
  const caption = element("caption");
  const head = element("tr", {}, ...["peer", "takes from"].map((text) => element("th", { scope: "col", textContent: text })));
  const scroll = element("div", { className: "scroll", tabIndex: 0 });
  scroll.setAttribute("role", "region");
  scroll.setAttribute("aria-label", "Which peer takes from which");
  scroll.append(element("table", {}, caption, element("thead", {}, head), body));
  const table = element("details", {}, element("summary", { textContent: "The graph of this round as a table" }), scroll);
  table.addEventListener("toggle", () => { if (table.open) fillTable(); });
  section.append(table);

  function fillTable() {
    caption.textContent = `Round ${kind.frames[at][0]}${kind.weighed ? ", with weights" : ""}`;
    const rows = graph.peers.map(() => []);
    for (const [cell, share] of entries(kind.frames[at])) {
      rows[Math.floor(cell / count)].push(`${graph.peers[cell % count]}${kind.weighed ? ` (${weight(share)})` : ""}`);
    }
    body.replaceChildren(...rows.map((row, i) => element("tr", {},
      element("th", { scope: "row", textContent: graph.peers[i] }),
      element("td", { className: "name", textContent: row.join(", ") || "no peer" }))));
  }

  draw();
}
