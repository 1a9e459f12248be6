/* Every figure can be saved, with the colours that it has now: as SVG, and as PNG at twice its size. */

const LOOK = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "stroke-linecap",
  "stroke-linejoin", "opacity", "font-family", "font-size", "font-weight", "shape-rendering", "paint-order"];

function standing(drawing) {
  const copy = drawing.cloneNode(true);
  const originals = drawing.querySelectorAll("*");
  copy.querySelectorAll("*").forEach((part, i) => {
    const look = getComputedStyle(originals[i]);
    for (const property of LOOK) part.setAttribute(property, look.getPropertyValue(property));
    for (const name of ["class", "data-name", "tabindex", "role", "aria-label", "aria-hidden"]) part.removeAttribute(name);
  });
  copy.querySelectorAll("g").forEach((group) => { for (const property of LOOK) group.removeAttribute(property); });
  const { width, height } = drawing.viewBox.baseVal;
  const back = svgElement("rect", { width, height, fill: getComputedStyle(drawing.closest("section")).backgroundColor });
  copy.querySelector("title").after(back);
  for (const [key, value] of Object.entries({ xmlns: "http://www.w3.org/2000/svg", width, height, role: "img" })) {
    copy.setAttribute(key, value);
  }
  for (const key of Object.keys(copy.dataset)) delete copy.dataset[key];
  return { text: new XMLSerializer().serializeToString(copy), width, height };
}

function download(blob, name) {
  const link = element("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

async function asPng({ text, width, height }) {
  const image = new Image();
  image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(text)}`;
  await image.decode();
  const canvas = element("canvas", { width: 2 * width, height: 2 * height });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/png"));
}

for (const figure of document.querySelectorAll("figure[data-file]")) {
  const drawing = figure.querySelector(".drawing > svg");
  const heading = figure.closest("section").querySelector("h2").textContent;
  const saving = element("div", { className: "saving" });
  for (const form of ["SVG", "PNG"]) {
    const button = element("button", { type: "button", textContent: form });
    button.setAttribute("aria-label", `${form}: save ${heading} (${figure.dataset.file})`);
    button.addEventListener("click", async () => {
      const drawn = standing(drawing);
      const blob = form === "SVG" ? new Blob([drawn.text], { type: "image/svg+xml" }) : await asPng(drawn);
      download(blob, `${figure.dataset.file}.${form.toLowerCase()}`);
    });
    saving.append(button);
  }
  figure.append(saving);
}
