/* Saves each figure as SVG, PDF or PNG with its legend, at the width of a paper's column: on white whatever the page's
   theme, or as shown. */

const LOOK = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "stroke-linecap",
  "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "shape-rendering", "paint-order"];
const BACKGROUNDS = { white: "on white", transparent: "without background", shown: "as on screen" };
const MM_PER_INCH = 25.4;
const { widthMm, dpi } = document.querySelector("main").dataset;

/* ---- settings for all figures of the page ---- */

const onWhat = element("select", { id: "background" });
for (const [value, textContent] of Object.entries(BACKGROUNDS)) onWhat.append(element("option", { value, textContent }));
const choice = element("label", { className: "save-as", textContent: "Save figures " });
choice.append(onWhat);
let bar = document.querySelector(".bar");
if (!bar) {
  bar = element("div", { className: "bar" });
  document.querySelector(".figures").before(bar);
}
bar.append(choice);

/* ---- the standalone picture ---- */

/* Works on an invisible copy that has the styles with which the figure is saved. */
function staged(drawing, work) {
  const stage = element("div", { className: onWhat.value === "shown" ? "stage" : "stage paper" });
  stage.setAttribute("aria-hidden", "true");
  const copy = drawing.cloneNode(true);
  copy.querySelectorAll(".tip").forEach((tip) => tip.remove());
  stage.append(copy);
  drawing.closest("section").append(stage);
  try {
    return work(copy, backgroundOf(stage));
  } finally {
    stage.remove();
  }
}

function backgroundOf(stage) {
  if (onWhat.value === "transparent") return "";
  return onWhat.value === "white" ? "rgb(255, 255, 255)" : getComputedStyle(stage.closest("section")).backgroundColor;
}

function asSvg(copy, background) {
  const { width, height } = copy.viewBox.baseVal;
  for (const part of copy.querySelectorAll("*")) {
    if (part.tagName !== "g" && part.tagName !== "title") {
      const look = getComputedStyle(part);
      if (look.strokeOpacity === "0") { part.remove(); continue; } // lines that show only when highlighted
      for (const property of LOOK) part.setAttribute(property, look.getPropertyValue(property));
    }
  }
  for (const part of copy.querySelectorAll("*")) {
    for (const name of ["class", "data-name", "tabindex", "role", "aria-label", "aria-hidden"]) part.removeAttribute(name);
  }
  if (background) copy.querySelector("title").after(svgElement("rect", { width, height, fill: background }));
  const size = { width: `${widthMm}mm`, height: `${((widthMm * height) / width).toFixed(2)}mm` };
  for (const [key, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", ...size, role: "img" })) {
    copy.setAttribute(key, value);
  }
  copy.removeAttribute("class");
  for (const key of Object.keys(copy.dataset)) delete copy.dataset[key];
  return { text: new XMLSerializer().serializeToString(copy), ratio: height / width };
}

/* ---- file formats ---- */

async function asPng({ text, ratio }) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const width = Math.round((widthMm / MM_PER_INCH) * dpi);
  const canvas = element("canvas", { width, height: Math.round(width * ratio) });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
  return withResolution(new Uint8Array(await blob.arrayBuffer()));
}

/* Adds the resolution to a PNG file: a pHYs chunk after the header, which ends at byte 33. */
function withResolution(png) {
  const chunk = new DataView(new ArrayBuffer(21));
  const perMetre = Math.round((dpi / MM_PER_INCH) * 1000);
  chunk.setUint32(0, 9);
  [..."pHYs"].forEach((letter, i) => chunk.setUint8(4 + i, letter.charCodeAt(0)));
  chunk.setUint32(8, perMetre);
  chunk.setUint32(12, perMetre);
  chunk.setUint8(16, 1); // unit: metre
  chunk.setUint32(17, crc(new Uint8Array(chunk.buffer, 4, 13)));
  return new Blob([png.slice(0, 33), chunk.buffer, png.slice(33)], { type: "image/png" });
}

function crc(bytes) {
  let value = 0xffffffff;
  for (const byte of bytes) {
    value ^= byte;
    for (let bit = 0; bit < 8; bit += 1) value = (value >>> 1) ^ (value & 1 ? 0xedb88320 : 0);
  }
  return (value ^ 0xffffffff) >>> 0;
}

const FORMS = {
  SVG: (drawing) => new Blob([staged(drawing, asSvg).text], { type: "image/svg+xml" }),
  PDF: (drawing) => staged(drawing, (copy, background) => asPdf(copy, { width: (widthMm / MM_PER_INCH) * 72, background })),
  PNG: (drawing) => asPng(staged(drawing, asSvg)),
};

/* ---- the buttons ---- */

function download(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

for (const figure of document.querySelectorAll("figure[data-file]")) {
  const drawing = figure.querySelector(".drawing > svg");
  const heading = figure.closest("section").querySelector("h2").textContent;
  const saving = element("div", { className: "saving" });
  for (const [form, make] of Object.entries(FORMS)) {
    const button = element("button", { type: "button", textContent: form });
    button.setAttribute("aria-label", `${form}: save ${heading} (${figure.dataset.file})`);
    button.addEventListener("click", async () => download(await make(drawing), `${figure.dataset.file}.${form.toLowerCase()}`));
    saving.append(button);
  }
  figure.append(saving);
}
