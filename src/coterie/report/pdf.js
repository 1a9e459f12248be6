/* Converts a drawing to a vector PDF. Supports only the elements that our figures use: path, line, rect, circle, text.

   The browser supplies transforms (getCTM) and styles (getComputedStyle). Text is set in Helvetica, which every PDF
   reader has; text with other characters is painted by the browser at 1200 dpi. */

const FONTS = { regular: "Helvetica", bold: "Helvetica-Bold" };
/* Widths of the Helvetica glyphs from space to ~, in thousandths of the font size. */
const WIDTHS = [278, 278, 355, 556, 556, 889, 667, 191, 333, 333, 389, 584, 278, 333, 278, 278, ...Array(10).fill(556), 278,
  278, 584, 584, 584, 556, 1015, 667, 667, 722, 722, 667, 611, 778, 722, 278, 500, 667, 556, 833, 722, 778, 667, 778, 722,
  667, 611, 722, 667, 944, 667, 667, 611, 278, 278, 278, 469, 556, 333, 556, 556, 500, 556, 556, 278, 556, 556, 222, 222,
  500, 222, 833, 556, 556, 556, 556, 333, 500, 278, 556, 500, 722, 500, 500, 500, 334, 260, 334, 584];
const STENCIL = 1200; // dots per inch
const ROUND = 0.5523; // control points of a quarter circle as a Bézier curve
/* WinAnsiEncoding from 0x80 on, where it differs from Latin 1. */
const BEYOND = "€ ‚ƒ„…†‡ˆ‰Š‹Œ Ž  ‘’“”•–—˜™š›œ žŸ";

const digits = (...values) => values.map((value) => +value.toFixed(3)).join(" ");

function asPdf(drawing, { width, background }) {
  const box = drawing.viewBox.baseVal;
  const scale = width / box.width; // points per unit
  const file = { states: new Map(), images: [] };
  const toPage = drawing.getScreenCTM().inverse(); // independent of the size on screen
  const parts = [`${digits(scale)} 0 0 ${digits(-scale)} 0 ${digits(box.height * scale)} cm`];
  if (background) parts.push(`${colour(background).rgb} rg 0 0 ${digits(box.width, box.height)} re f`);
  for (const part of drawing.querySelectorAll("path, line, rect, circle, text")) {
    if (part.textContent === "" && part.tagName === "text") continue;
    const { a, b, c, d, e, f } = toPage.multiply(part.getScreenCTM());
    const painted = part.tagName === "text" ? pdfText(part, file, scale) : pdfShape(part, file);
    if (painted) parts.push(`q ${[a, b, c, d].map((v) => +v.toFixed(6)).join(" ")} ${digits(e, f)} cm\n${painted}\nQ`);
  }
  return pdfFile(file, parts.join("\n"), width, box.height * scale);
}

/* ---- colours and opacity ---- */

function colour(css) {
  const [red, green, blue, alpha = 1] = (css.match(/[\d.]+/g) ?? []).map(Number);
  return { rgb: digits(red / 255, green / 255, blue / 255), alpha };
}

const isPainted = (css) => css !== "none" && colour(css).alpha > 0;

function state(file, fill, stroke) {
  const key = `/ca ${digits(fill)} /CA ${digits(stroke)}`;
  if (!file.states.has(key)) file.states.set(key, `S${file.states.size}`);
  return `/${file.states.get(key)} gs`;
}

/* ---- shapes ---- */

function pdfShape(part, file) {
  const look = getComputedStyle(part);
  const fills = isPainted(look.fill) && part.tagName !== "line";
  const strokes = isPainted(look.stroke) && parseFloat(look.strokeWidth) > 0 && look.strokeOpacity !== "0";
  const outline = OUTLINES[part.tagName](part);
  if (!outline || !(fills || strokes)) return "";
  const opacity = Number(look.opacity);
  const commands = [state(file, opacity * look.fillOpacity, opacity * look.strokeOpacity)];
  if (fills) commands.push(`${colour(look.fill).rgb} rg`);
  if (strokes) {
    const dashes = look.strokeDasharray === "none" ? "" : look.strokeDasharray.replace(/px|,/g, " ");
    const cap = { butt: 0, round: 1, square: 2 }[look.strokeLinecap];
    const join = { miter: 0, round: 1, bevel: 2 }[look.strokeLinejoin];
    commands.push(`${colour(look.stroke).rgb} RG ${digits(parseFloat(look.strokeWidth))} w ${cap} J ${join} j [${dashes}] 0 d`);
  }
  return [...commands, outline, fills && strokes ? "B" : fills ? "f" : "S"].join("\n");
}

const OUTLINES = {
  line: (part) => {
    const [x1, y1, x2, y2] = ["x1", "y1", "x2", "y2"].map((key) => part[key].baseVal.value);
    return `${digits(x1, y1)} m ${digits(x2, y2)} l`;
  },
  rect: (part) => {
    const [x, y, width, height] = ["x", "y", "width", "height"].map((key) => part[key].baseVal.value);
    return `${digits(x, y, width, height)} re`;
  },
  circle: (part) => {
    const [x, y, r] = ["cx", "cy", "r"].map((key) => part[key].baseVal.value);
    const k = r * ROUND;
    return [
      `${digits(x + r, y)} m`,
      `${digits(x + r, y + k, x + k, y + r, x, y + r)} c`, `${digits(x - k, y + r, x - r, y + k, x - r, y)} c`,
      `${digits(x - r, y - k, x - k, y - r, x, y - r)} c`, `${digits(x + k, y - r, x + r, y - k, x + r, y)} c h`,
    ].join(" ");
  },
  path: (part) => pdfPath(part.getAttribute("d") ?? ""),
};

const TAKES = { M: 2, L: 2, H: 1, V: 1, Q: 4, C: 6, Z: 0 };

function pdfPath(d) {
  const commands = [];
  let [x, y, startX, startY] = [0, 0, 0, 0];
  for (const [, letter, rest] of d.matchAll(/([a-zA-Z])([^a-zA-Z]*)/g)) {
    const numbers = (rest.match(/-?(?:\d+\.?\d*|\.\d+)/g) ?? []).map(Number);
    const kind = letter.toUpperCase();
    const moves = letter !== kind; // lower case: relative to the current point
    const takes = TAKES[kind];
    if (takes === undefined) throw new Error(`a path with ${letter} cannot be saved as PDF`);
    for (let at = 0; at === 0 || at < numbers.length; at += takes) {
      const some = numbers.slice(at, at + takes);
      if (kind === "Z") {
        commands.push("h");
        [x, y] = [startX, startY];
        break;
      }
      if (kind === "H") some.push(moves ? 0 : y);
      if (kind === "V") some.unshift(moves ? 0 : x);
      const points = some.map((value, i) => (moves ? value + (i % 2 ? y : x) : value));
      if (kind === "Q") { // PDF only has cubic curves
        const [middleX, middleY, toX, toY] = points;
        points.unshift(x + (2 / 3) * (middleX - x), y + (2 / 3) * (middleY - y));
        points.splice(2, 2, toX + (2 / 3) * (middleX - toX), toY + (2 / 3) * (middleY - toY));
      }
      [x, y] = points.slice(-2);
      if (kind === "M" && at === 0) [startX, startY] = [x, y];
      commands.push(`${digits(...points)} ${kind === "M" && at === 0 ? "m" : "QC".includes(kind) ? "c" : "l"}`);
    }
  }
  return commands.join(" ");
}

/* ---- texts ---- */

function pdfText(part, file, scale) {
  const look = getComputedStyle(part);
  const text = part.textContent;
  const size = parseFloat(look.fontSize);
  const bold = Number(look.fontWeight) >= 600;
  const [x, y] = ["x", "y"].map((key) => Number(part.getAttribute(key) ?? 0));
  const from = (wide) => x - { start: 0, middle: wide / 2, end: wide }[look.textAnchor];
  const commands = [state(file, look.opacity * look.fillOpacity, 1), `${colour(look.fill).rgb} rg`];
  const codes = [...text].map(codeOf);
  if (codes.includes(undefined)) {
    const wide = part.getComputedTextLength();
    const font = `${look.fontWeight} ${size * scale * (STENCIL / 72)}px ${look.fontFamily}`;
    return [...commands, stencil(text, file, { font, from: from(wide), y, wide, size, dots: scale * (STENCIL / 72) })].join("\n");
  }
  const wide = (size / 1000) * codes.reduce((sum, code) => sum + (WIDTHS[code - 32] ?? 556), 0);
  const hex = codes.map((code) => code.toString(16).padStart(2, "0")).join("");
  return [...commands, `BT /${bold ? "bold" : "regular"} ${digits(size)} Tf 1 0 0 -1 ${digits(from(wide), y)} Tm <${hex}> Tj ET`].join("\n");
}

function codeOf(letter) {
  const code = letter.codePointAt(0);
  if ((code >= 32 && code < 127) || (code >= 160 && code < 256)) return code;
  const place = letter === " " ? -1 : BEYOND.indexOf(letter);
  return place < 0 ? undefined : 128 + place;
}

/* Text rendered by the browser: a black-and-white mask through which its colour is painted. */
function stencil(text, file, { font, from, y, wide, size, dots }) {
  const height = size * 1.5;
  const canvas = element("canvas", { width: Math.ceil(wide * dots), height: Math.ceil(height * dots) });
  const pen = canvas.getContext("2d");
  pen.font = font;
  pen.fillText(text, 0, size * 1.1 * dots);
  const pixels = pen.getImageData(0, 0, canvas.width, canvas.height).data;
  const row = Math.ceil(canvas.width / 8);
  const bits = new Uint8Array(row * canvas.height).fill(255);
  for (let i = 0; i < canvas.width * canvas.height; i += 1) {
    const across = i % canvas.width;
    if (pixels[4 * i + 3] > 127) bits[row * Math.floor(i / canvas.width) + (across >> 3)] &= ~(128 >> (across & 7));
  }
  file.images.push({ bits, width: canvas.width, height: canvas.height });
  return `${digits(wide)} 0 0 ${digits(-height)} ${digits(from, y + size * 0.4)} cm /I${file.images.length - 1} Do`;
}

/* ---- the file ---- */

function pdfFile(file, content, width, height) {
  const encode = (text) => new TextEncoder().encode(text);
  const objects = [];
  const add = (head, stream) => objects.push({ head, stream }); // an object's number is its position, from 1
  add("<</Type/Catalog/Pages 2 0 R>>");
  add("<</Type/Pages/Kids[3 0 R]/Count 1>>");
  const fonts = Object.entries(FONTS).map(([name, font]) => `/${name}<</Type/Font/Subtype/Type1/BaseFont/${font}/Encoding/WinAnsiEncoding>>`);
  const states = [...file.states].map(([what, name]) => `/${name}<<${what}>>`);
  const images = file.images.map((_, i) => `/I${i} ${5 + i} 0 R`);
  const resources = `<</Font<<${fonts.join("")}>>/ExtGState<<${states.join("")}>>/XObject<<${images.join("")}>>>>`;
  add(`<</Type/Page/Parent 2 0 R/MediaBox[0 0 ${digits(width, height)}]/Resources${resources}/Contents 4 0 R>>`);
  const stream = encode(content);
  add(`<</Length ${stream.length}>>`, stream);
  for (const { bits, width: across, height: down } of file.images) {
    add(`<</Type/XObject/Subtype/Image/ImageMask true/Width ${across}/Height ${down}/BitsPerComponent 1/Length ${bits.length}>>`, bits);
  }
  const pieces = [];
  let length = 0;
  const write = (bytes) => { pieces.push(bytes); length += bytes.length; };
  write(encode("%PDF-1.4\n"));
  const places = objects.map(({ head, stream: bytes }, i) => {
    const place = length;
    write(encode(`${i + 1} 0 obj\n${head}\n`));
    if (bytes) for (const piece of [encode("stream\n"), bytes, encode("\nendstream\n")]) write(piece);
    write(encode("endobj\n"));
    return place;
  });
  const start = length;
  const entries = places.map((place) => `${String(place).padStart(10, "0")} 00000 n \n`);
  write(encode(`xref\n0 ${objects.length + 1}\n0000000000 65535 f \n${entries.join("")}`));
  write(encode(`trailer\n<</Size ${objects.length + 1}/Root 1 0 R>>\nstartxref\n${start}\n%%EOF\n`));
  return new Blob(pieces, { type: "application/pdf" });
}
