/** Small maps of every layer and head, sorted by a summary number. */

import { el } from "./dom.js";
import { pixel } from "./colour.js";
import { write } from "./numbers.js";
import { headWeights, labelsOf, layersOf } from "./trace.js";
import { t } from "./words.js";

const DOWNWARD = { entropy: false, locality: true, alignment: true }; // sort order: lowest entropy, highest locality and alignment first

/** Return all [layer, head] in the chosen order. */
export function orderedHeads(trace, kind, sort) {
  const all = [];
  for (let layer = 0; layer < layersOf(trace, kind); layer++) {
    for (let head = 0; head < trace.model.n_heads; head++) all.push([layer, head]);
  }
  const numbers = trace.raw.attention[kind][sort];
  if (!numbers) return all;
  const sign = DOWNWARD[sort] ? -1 : 1;
  return all.sort(([a, b], [c, d]) => sign * (numbers[a][b] - numbers[c][d]) || a - c || b - d);
}

export function thumbnailsView(pick) {
  const element = el("ul.thumbnails");
  let seer = null;

  function update(trace, { kind, sort, words, isChosen }) {
    if (seer) seer.disconnect();
    seer = new IntersectionObserver(
      (entries) => {
        for (const { isIntersecting, target } of entries) {
          if (!isIntersecting) continue;
          seer.unobserve(target);
          paintThumbnail(target, trace, kind, words);
        }
      },
      { rootMargin: "300px" },
    );
    const numbers = trace.raw.attention[kind];
    const labels = labelsOf(trace, kind, words);
    element.replaceChildren(
      ...orderedHeads(trace, kind, sort).map(([layer, head]) => {
        const canvas = el("canvas", {
          width: labels.columns.length,
          height: labels.rows.length,
          "aria-hidden": "true",
        });
        canvas.dataset.layer = layer;
        canvas.dataset.head = head;
        seer.observe(canvas);
        const value = numbers[sort] ? write(numbers[sort][layer][head], 2) : "";
        const facts = ["entropy", "locality", "alignment"].filter((name) => numbers[name]);
        const told = facts.map((name) => `${t(`sort.${name}`)} ${write(numbers[name][layer][head], 2)}`).join(" · ");
        const name = t("grid.name", layer + 1, head + 1);
        return el(
          "li",
          {},
          el(
            "button",
            {
              type: "button",
              title: told,
              "aria-label": `${name}. ${told}`,
              "aria-pressed": String(isChosen(layer, head)),
              onclick: () => pick(layer, head),
            },
            canvas,
            el("span", {}, `${layer + 1}·${head + 1}`, el("em", {}, value)),
          ),
        );
      }),
    );
  }
  return { element, update };
}

/** Draw one pixel for each weight; CSS enlarges it. */
function paintThumbnail(canvas, trace, kind, words) {
  const weights = headWeights(trace, kind, Number(canvas.dataset.layer), Number(canvas.dataset.head), words);
  const context = canvas.getContext("2d");
  const image = context.createImageData(canvas.width, canvas.height);
  const pixels = new Uint32Array(image.data.buffer);
  for (let i = 0; i < weights.length; i++) pixels[i] = pixel(weights[i]);
  context.putImageData(image, 0, 0);
}
