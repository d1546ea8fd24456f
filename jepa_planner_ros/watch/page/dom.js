// Elements of the page. Whatever comes from messages is set as text, never as HTML.

const SVG = "http://www.w3.org/2000/svg";

const filled = (element, attributes, children) => {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "colour") element.style.setProperty("--colour", `var(--${value})`);
    else element.setAttribute(name, value);
  }
  // Strings become text nodes.
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
};

export const html = (tag, attributes = {}, ...children) =>
  filled(document.createElement(tag), attributes, children);

export const svg = (tag, attributes = {}, ...children) =>
  filled(document.createElementNS(SVG, tag), attributes, children);

export const byId = (id) => document.getElementById(id);

export const setText = (id, text) => {
  const element = byId(id);
  if (element.textContent !== text) element.textContent = text;
};

const shown = new Map();

// Calls `draw` only when the value, or the size that it is drawn at, is another than last time, so
// that a page that stands still costs nothing and does not disturb a selection or the focus.
export const whenChanged = (key, value, draw) => {
  const text = JSON.stringify(value);
  if (shown.get(key) === text) return;
  shown.set(key, text);
  draw();
};

export const redrawAll = () => shown.clear();
