/** Attention over an image: the weights of one token on the patches, at first of the class token. */

import { button, tableView } from "./controls.js";
import { el } from "./dom.js";
import { write } from "./numbers.js";
import { t } from "./words.js";

const STRONGEST = 0.85; // opacity of the patch with the largest weight

/**
 * `shown()` returns {image: {url, rows, columns}, labels, row, weights}: the labels of the class token and the patches row by
 * row, the index of the query, and its weights. `pick(row)` chooses another query.
 */
export function imageView(shown, pick) {
  const plain = el("img", { alt: t("image.plain") });
  const over = el("img", { alt: "" });
  const patches = el(".patches", { role: "group", "aria-label": t("image.patches") });
  const readout = el("p.readout", { role: "status" });
  const classToken = button(t("image.class"), () => pick(0), { id: "class-token" });
  const table = tableView(t("matrix.table"), () => tableOf(shown()));
  const element = el(
    "figure.photo-figure",
    {},
    el(".photos", {}, el(".photo", {}, plain), el(".photo.under", {}, over, patches)),
    el(".controls", {}, classToken),
    readout,
    table.element,
  );

  function update() {
    const { image, labels, row, weights } = shown();
    plain.src = over.src = image.url;
    patches.style.gridTemplateColumns = `repeat(${image.columns}, 1fr)`;
    const most = weights.reduce((largest, weight, i) => (i ? Math.max(largest, weight) : largest), 1e-12);
    const say = (i) => () => (readout.textContent = t("image.value", nameOf(labels, row), labels[i], write(weights[i])));
    refill(
      patches,
      labels.slice(1).map((label, place) => {
        const i = place + 1;
        const patch = button("", () => pick(i), {
          "aria-label": `${label}: ${write(weights[i])}`,
          "aria-pressed": String(i === row),
          "data-patch": i,
          onpointerenter: say(i),
          onfocus: say(i),
        });
        patch.style.backgroundColor = `rgb(255 210 0 / ${(STRONGEST * weights[i]) / most})`;
        return patch;
      }),
    );
    classToken.setAttribute("aria-pressed", String(row === 0));
    readout.textContent = t("image.looks", nameOf(labels, row), write(weights[0]));
    table.refresh();
  }
  return { element, update };
}

function nameOf(labels, row) {
  return row === 0 ? t("image.class") : t("image.patch", labels[row]);
}

/** Replace the patches and keep the keyboard focus at its position. */
function refill(holder, children) {
  const place = [...holder.children].indexOf(document.activeElement);
  holder.replaceChildren(...children);
  if (place >= 0) holder.children[place].focus();
}

function tableOf({ image, labels, row, weights }) {
  const numbers = Array.from({ length: image.rows }, (_, r) => [
    String(r + 1),
    ...Array.from({ length: image.columns }, (_, c) => write(weights[1 + r * image.columns + c])),
  ]);
  const head = ["", ...Array.from({ length: image.columns }, (_, c) => String(c + 1))];
  return { caption: t("image.looks", nameOf(labels, row), write(weights[0])), head, rows: numbers };
}
