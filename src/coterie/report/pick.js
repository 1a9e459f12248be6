"use strict";
/* Shared by all figures: highlighting a peer or label in all of them at once, and switches between figures. */

const data = JSON.parse(document.getElementById("data").textContent);
const drawings = [...document.querySelectorAll(".drawing > svg")];
const pickListeners = []; // called with the highlighted name, "" for none

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function svgElement(tag, attributes = {}) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  return made;
}

/* The marks of each name, in all drawings. */
const marks = new Map();
for (const mark of document.querySelectorAll(".drawing [data-name]")) {
  if (!marks.has(mark.dataset.name)) marks.set(mark.dataset.name, []);
  marks.get(mark.dataset.name).push(mark);
}

let picked = "";

function pick(name) {
  for (const mark of marks.get(picked) ?? []) mark.classList.remove("picked");
  for (const drawing of drawings) drawing.classList.remove("picking");
  picked = name;
  for (const mark of marks.get(name) ?? []) {
    mark.classList.add("picked");
    mark.closest("svg").classList.add("picking");
    if (mark.matches(".line")) mark.parentNode.append(mark); // above the others
  }
  for (const listener of pickListeners) listener(name);
}

/* A list for highlighting with the keyboard. */
if (data.names.length) {
  const list = element("select", { id: "pick" }, element("option", { value: "", textContent: `no ${data.what}` }));
  for (const name of data.names) list.append(element("option", { value: name, textContent: name }));
  list.addEventListener("change", () => pick(list.value));
  pickListeners.push((name) => { list.value = data.names.includes(name) ? name : ""; });
  const about = element("span", { className: "soft" });
  about.setAttribute("role", "status");
  pickListeners.push((name) => { about.textContent = data.about[data.names.indexOf(name)] ?? ""; });
  const label = element("label", { textContent: "Highlight " });
  label.append(list);
  const bar = element("div", { className: "bar" }, label, about);
  document.querySelector(".figures").before(bar);
}

/* A click on a mark highlights it; a second click clears the highlight. */
for (const drawing of drawings) {
  drawing.addEventListener("click", (event) => {
    const name = event.target.dataset?.name;
    if (name) pick(name === picked ? "" : name);
  });
}

/* Switches: one of several figures is shown at a time. */
let switches = 0;
for (const group of document.querySelectorAll("[data-switch]")) {
  const options = [...group.querySelectorAll(":scope > [data-option]")];
  const legend = element("legend", { textContent: group.dataset.switch });
  const choice = element("fieldset", { className: "choice" }, legend);
  const name = `switch-${switches++}`;
  for (const option of options) {
    const radio = element("input", { type: "radio", name, checked: option === options[0] });
    radio.addEventListener("change", () => show(option));
    choice.append(element("label", {}, radio, option.dataset.option));
  }
  const show = (chosen) => { for (const option of options) option.hidden = option !== chosen; };
  group.prepend(choice);
  show(options[0]);
}
