// How numbers and small things are written, everywhere on the page alike.

import { byId, html, setText } from "./dom.js";

export const NONE = "\u2013";

export const fixed = (value, digits) => (value === null || value === undefined ? NONE : value.toFixed(digits));
export const seconds = (age) => (age < 10 ? `${age.toFixed(1)} s` : age < 120 ? `${age.toFixed(0)} s` : `${(age / 60).toFixed(0)} min`);
export const plural = (count, word) => `${count} ${word}${count === 1 ? "" : "s"}`;

export const empty = (place, text) => place.replaceChildren(html("p", { class: "empty" }, text));

export const legend = (id, entries) =>
  byId(id).replaceChildren(
    ...entries.map(([label, colour, thin]) =>
      html("li", {}, html("i", { colour, class: thin ? "thin" : null }), label)),
  );

export const badge = (id, text, kind = "") => {
  setText(id, text);
  byId(id).className = `badge ${kind}`;
};
