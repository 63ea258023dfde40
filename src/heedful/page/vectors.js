/** Vectors as coloured cells, formulas, and a card for each step of a computation. */

import { el } from "./dom.js";
import { inkOn, signedShade } from "./colour.js";
import { write } from "./numbers.js";
import { t } from "./words.js";

/** The numbers of a vector, coloured by value; `norm` is the norm of the whole vector. */
export function vectorStrip(name, vector, { digits = 2, total = null } = {}) {
  if (!vector) return el("span");
  const numbers = [...vector.first];
  const largest = Math.max(...numbers.map(Math.abs), 1e-9);
  const cells = numbers.map((x) => {
    const cell = el(
      "span.number",
      { title: write(x, 6) },
      Number.isInteger(x) ? write(x) : x.toFixed(digits).replace("-", "−"),
    );
    cell.style.backgroundColor = signedShade(x, largest * 1.6);
    cell.style.color = inkOn(x, largest * 1.6);
    return cell;
  });
  const isCut = total !== null && total > numbers.length;
  const rest = isCut ? el("span.rest", {}, t("vector.more", total - numbers.length)) : null;
  const norm = vector.norm === undefined ? null : el("span.norm", {}, t("vector.length", write(vector.norm, 2)));
  return el(".vector", {}, el("span.vector-name", {}, ...formula(name)), el("span.numbers", {}, ...cells, rest), norm);
}

/** Render x_{…} and x_y as subscripts. */
export function formula(text) {
  return text
    .split(/(_\{[^}]*\}|_[A-Za-z0-9])/)
    .filter(Boolean)
    .map((part) => {
      if (!/^_(\{|[A-Za-z0-9]$)/.test(part)) return part;
      return el("sub", {}, part.replace(/^_\{?|\}$/g, ""));
    });
}

/** A card for one step; `narrow` cards are placed side by side. */
export function stepCard({ number, title, formula: text, says, narrow }, ...children) {
  return el(
    narrow ? "li.card.narrow" : "li.card",
    {},
    el("h4", {}, number ? el("span.step-number", {}, number) : null, el("span", {}, ...formula(title))),
    text ? el("p.formula", {}, ...formula(text)) : null,
    says ? el("p.note", {}, ...[says].flat()) : null,
    ...children,
  );
}

/** A bar from 0 to 1 with its value. */
export function unitBar(value, text = write(value)) {
  const fill = el("span.fill");
  fill.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
  return el("span.unit-bar", {}, el("span.track", { "aria-hidden": "true" }, fill), el("span.unit-number", {}, text));
}
