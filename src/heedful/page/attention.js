/** View 1: attention. Each kind as a matrix, as lines, over an image, or all heads at once. */

import { el } from "./dom.js";
import { headColour } from "./colour.js";
import { imageView } from "./image.js";
import { button, choice, listChoice, tick } from "./controls.js";
import { linesView } from "./lines.js";
import { matrixView } from "./matrix.js";
import { write } from "./numbers.js";
import { change, state } from "./state.js";
import { thumbnailsView } from "./thumbnails.js";
import { alignedCells, headWeights, kindsOf, labelsOf, layersOf, meanWeights } from "./trace.js";
import { t } from "./words.js";

/** Return the kind of attention to show: the chosen kind, if the model has it. */
export function chosenKind(trace) {
  const kinds = kindsOf(trace);
  return kinds.includes(state.kind) ? state.kind : kinds[0];
}

/** Return the order of the grid. Only cross-attention can be sorted by alignment. */
function chosenSort(kind) {
  return state.sort === "alignment" && kind !== "cross" ? "order" : state.sort;
}

function chosenShow(trace) {
  const isThere = state.show && (state.show !== "image" || trace.raw.image);
  return isThere ? state.show : trace.raw.image ? "image" : "matrix";
}

/** Return the layer to show: state.layer, at first `first` (by default the last layer), at most the last layer of the stack. */
export function chosenLayer(trace, kind, first = Infinity) {
  return Math.min(state.layer < 0 ? first : state.layer, layersOf(trace, kind) - 1);
}

export function chosenHeads(trace) {
  const all = Array.from({ length: trace.model.n_heads }, (_, i) => i);
  if (state.heads === "all") return all;
  const heads = state.heads
    .split(".")
    .map(Number)
    .filter((head) => all.includes(head));
  return heads.length ? heads : all;
}

function pickHead(trace, head, isMore) {
  const before = state.heads === "all" && !isMore ? [] : chosenHeads(trace);
  let heads = [head];
  if (isMore) heads = before.includes(head) ? before.filter((other) => other !== head) : [...before, head];
  if (!heads.length) return;
  heads.sort((a, b) => a - b);
  change({ heads: heads.length === trace.model.n_heads && heads.length > 1 ? "all" : heads.join(".") });
}

/** Return the data of the matrix: the mean of the chosen heads, with each head's weight in the text of a cell. */
function shownMatrix(trace) {
  const { words, dim } = state;
  const kind = chosenKind(trace);
  const layer = chosenLayer(trace, kind);
  const heads = chosenHeads(trace);
  const labels = labelsOf(trace, kind, words);
  const values = meanWeights(trace, kind, layer, heads, words);
  const n = labels.columns.length;
  const marked = alignedCells(trace, kind, words);
  const describe = (r, c) => {
    const more = kind === "encoder" ? [] : [t("attention.stood", labels.readings[r])];
    if (marked.has(r * n + c)) more.push(t("attention.aligned"));
    if (heads.length > 1) {
      more.push(
        heads
          .map((head) => `${head + 1}: ${write(headWeights(trace, kind, layer, head, words)[r * n + c], 3)}`)
          .join("  "),
      );
    }
    return { where: `${labels.rows[r]} → ${labels.columns[c]}`, value: write(values[r * n + c]), more };
  };
  const name = t("attention.name", t(`kind.${kind}`), layer + 1, headsName(trace, heads));
  return {
    name,
    corner: t("attention.corner"),
    rows: labels.rows,
    columns: labels.columns,
    values,
    describe,
    marked,
    range: "unit",
    dim,
  };
}

function headsName(trace, heads) {
  if (heads.length === 1) return t("attention.head", heads[0] + 1);
  if (heads.length === trace.model.n_heads) return t("attention.mean", heads.length);
  return t("attention.meanOf", heads.map((head) => head + 1).join(", "));
}

/** The title of the lines, which show each head by itself. */
function linesName(trace) {
  const kind = chosenKind(trace);
  const heads = chosenHeads(trace);
  let name = t("attention.eachOf", heads.map((head) => head + 1).join(", "));
  if (heads.length === 1) name = headsName(trace, heads);
  else if (heads.length === trace.model.n_heads) name = t("attention.each", heads.length);
  return t("attention.name", t(`kind.${kind}`), chosenLayer(trace, kind) + 1, name);
}

/** Return the weights of the chosen token on the patches; the first chosen token is the class token. */
function shownImage(trace) {
  const kind = chosenKind(trace);
  const labels = labelsOf(trace, kind, false);
  const n = labels.columns.length;
  const row = state.row >= 0 && state.row < n ? state.row : 0;
  const weights = meanWeights(trace, kind, chosenLayer(trace, kind), chosenHeads(trace), false);
  return { image: trace.raw.image, labels: labels.columns, row, weights: weights.subarray(row * n, (row + 1) * n) };
}

function shownLines(trace) {
  const { words } = state;
  const kind = chosenKind(trace);
  const layer = chosenLayer(trace, kind);
  const heads = chosenHeads(trace).map((number) => ({
    number,
    values: headWeights(trace, kind, layer, number, words),
  }));
  const labels = labelsOf(trace, kind, words);
  return { rows: labels.rows, columns: labels.columns, heads, from: t(`from.${kind}`), to: t(`to.${kind}`) };
}

export function attentionView(host, { trace }) {
  const options = (names, prefix) => names.map((name) => [name, t(`${prefix}.${name}`)]);
  const kinds = choice(t("attention.kind"), options(kindsOf(trace), "short"), chosenKind(trace), (kind) =>
    change({ kind, row: -1 }),
  );
  const ways = [...(trace.raw.image ? ["image"] : []), "matrix", "lines", "grid"];
  const shows = choice(t("attention.show"), options(ways, "show"), chosenShow(trace), (show) => change({ show }));
  const units = choice(
    t("attention.units"),
    [
      [0, t("units.pieces")],
      [1, t("units.words")],
    ],
    Number(state.words),
    (value) => change({ words: value === 1, row: -1 }),
  );
  const several = tick(t("attention.several"), state.several, (value) => change({ several: value }));
  const dim = tick(t("attention.dim"), state.dim, (value) => change({ dim: value }));
  const sort = listChoice(
    t("grid.sort"),
    options(["order", "entropy", "locality", "alignment"], "sort"),
    state.sort,
    (value) => change({ sort: value }),
  );
  const layerHost = el("span");
  const headBar = el(".bar.heads");
  const headBox = el("fieldset.choice", {}, el("legend", {}, t("attention.heads")), headBar);
  const title = el("h3.title");
  const legend = el("p.note");
  const matrix = matrixView(() => shownMatrix(trace));
  const lines = linesView(
    () => shownLines(trace),
    (row) => change({ row }),
  );
  const photo = trace.raw.image
    ? imageView(
        () => shownImage(trace),
        (row) => change({ row }),
      )
    : null;
  const closer = trace.raw.image ? "image" : "matrix";
  const grid = thumbnailsView((layer, head) => change({ layer, heads: String(head), show: closer }));
  host.append(
    el(".controls", {}, kinds.element, shows.element, units.element),
    el(".controls", {}, layerHost, headBox, several.element, dim.element, sort.element),
    title,
    legend,
    photo ? photo.element : "",
    matrix.element,
    lines.element,
    grid.element,
    el("p.caution", {}, el("strong", {}, t("caution.title")), " ", t("caution.text")),
  );

  function heads() {
    const chosen = chosenHeads(trace);
    const isAll = chosen.length === trace.model.n_heads;
    const isOverlaid = chosenShow(trace) === "lines";
    const chips = Array.from({ length: trace.model.n_heads }, (_, head) => {
      const chip = button(
        String(head + 1),
        (event) => pickHead(trace, head, state.several || event.shiftKey || event.ctrlKey || event.metaKey),
        {
          "aria-pressed": String(chosen.includes(head) && !isAll),
          "aria-label": t("attention.head", head + 1),
        },
      );
      if (isOverlaid && chosen.includes(head)) chip.style.boxShadow = `inset 0 -4px 0 ${headColour(head)}`;
      return chip;
    });
    const all = button(t("attention.all"), () => change({ heads: "all" }), { "aria-pressed": String(isAll) });
    refill(headBar, [all, ...chips]);
  }

  function update() {
    const [kind, show] = [chosenKind(trace), chosenShow(trace)];
    kinds.set(kind);
    kinds.element.hidden = kindsOf(trace).length === 1;
    units.element.hidden = Boolean(trace.raw.image);
    shows.set(show);
    units.set(Number(state.words));
    several.set(state.several);
    dim.set(state.dim);
    sort.set(chosenSort(kind));
    const isGrid = show === "grid";
    updateLayers(layerHost, trace, kind);
    heads();
    layerHost.hidden = headBox.hidden = several.element.hidden = isGrid;
    dim.element.hidden = show !== "matrix";
    sort.element.hidden = !isGrid;
    if (photo) photo.element.hidden = show !== "image";
    matrix.element.hidden = show !== "matrix";
    lines.element.hidden = show !== "lines";
    grid.element.hidden = !isGrid;
    if (isGrid) title.textContent = t("grid.title", t(`kind.${kind}`));
    else title.textContent = show === "lines" ? linesName(trace) : shownMatrix(trace).name;
    legend.textContent = isGrid
      ? t(`sort.${chosenSort(kind)}.meaning`)
      : [t(show === "matrix" ? `legend.${kind}` : `legend.${show}`), state.words && t("units.rule"), isMarked(show, kind) && t("legend.aligned")]
          .filter(Boolean)
          .join(" ");
    if (photo && show === "image") photo.update();
    if (show === "matrix") matrix.update();
    if (show === "lines") lines.update(state.row);
    if (isGrid) {
      const isChosen = (layer, head) => layer === chosenLayer(trace, kind) && chosenHeads(trace).includes(head);
      grid.update(trace, { kind, sort: chosenSort(kind), words: state.words, isChosen });
    }
  }
  update();
  return update;
}

function isMarked(show, kind) {
  return show === "matrix" && kind === "cross";
}

/** Replace the children and keep the keyboard focus at its position. */
function refill(bar, children) {
  const place = [...bar.children].indexOf(document.activeElement);
  bar.replaceChildren(...children);
  if (place >= 0) bar.children[place].focus();
}

/** Show the layers of a stack as one bar; it is built again only for another stack. */
export function updateLayers(host, trace, kind, first) {
  const n = layersOf(trace, kind);
  if (host.dataset.kind !== kind || !host.set) {
    const options = Array.from({ length: n }, (_, i) => [i, String(i + 1)]);
    const layers = choice(t("attention.layer"), options, chosenLayer(trace, kind, first), (layer) =>
      change({ layer: Number(layer) }),
    );
    host.dataset.kind = kind;
    host.set = layers.set;
    host.replaceChildren(layers.element);
  }
  host.set(chosenLayer(trace, kind, first));
}
