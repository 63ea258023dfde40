/** View 5: positions. The code as an image, the similarity of positions, and the animation. */

import { el, perFrame, sharpen } from "./dom.js";
import { signedPixel } from "./colour.js";
import { choice, tableView } from "./controls.js";
import { filmView } from "./film.js";
import { cellAfter, matrixView } from "./matrix.js";
import { positionCode, similarities, write } from "./numbers.js";
import { change, state } from "./state.js";
import { t } from "./words.js";

const FIGURE = { rows: 20, width: 512 }; // as in The Illustrated Transformer

/** A table of numbers as an image, one pixel each, enlarged by CSS, with the value of a pixel and a table. */
function codeImage() {
  const canvas = el("canvas.code", { "aria-hidden": "true" });
  const frame = el(".code-cursor", { "aria-hidden": "true", hidden: true });
  const box = el(".code-box", { tabindex: "0", role: "img" }, canvas, frame);
  const readout = el("p.readout", { role: "status" }, t("positions.hint"));
  const table = tableView(t("matrix.table"), () => tableOf(shown));
  let shown = null;
  let cursor = null;
  function point(cell) {
    cursor = cell;
    frame.hidden = !cell;
    readout.textContent = t("positions.hint");
    if (!cell) return;
    const [r, c] = cell;
    const { rows, width, values } = shown;
    const share = (part, whole) => `${(100 * part) / whole}%`;
    Object.assign(frame.style, { left: share(c, width), top: share(r, rows), width: share(1, width), height: share(1, rows) });
    readout.textContent = t("positions.value", r, c, write(values[r * width + c]));
  }
  box.addEventListener("pointermove", (event) => {
    const { left, top, width, height } = canvas.getBoundingClientRect();
    const place = (share, n) => Math.min(n - 1, Math.max(0, Math.floor(share * n)));
    point([place((event.clientY - top) / height, shown.rows), place((event.clientX - left) / width, shown.width)]);
  });
  box.addEventListener("keydown", (event) => {
    const next = event.key === "Escape" ? null : cellAfter(event, cursor, [shown.rows, shown.width]);
    if (!next && event.key !== "Escape") return;
    event.preventDefault();
    point(next);
  });
  function update(code) {
    shown = code;
    point(cursor && cursor[0] < code.rows && cursor[1] < code.width ? cursor : null);
    canvas.width = code.width;
    canvas.height = code.rows;
    box.setAttribute("aria-label", `${t("positions.image", code.rows, code.width)}. ${t("positions.keys")}`);
    const context = canvas.getContext("2d");
    const image = context.createImageData(code.width, code.rows);
    const pixels = new Uint32Array(image.data.buffer);
    const largest = code.values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    for (let i = 0; i < pixels.length; i++) pixels[i] = signedPixel(code.values[i], largest);
    context.putImageData(image, 0, 0);
    table.refresh();
  }
  return { element: el("figure.code-figure", {}, box, readout, table.element), update };
}

/** The same numbers as a table; rows (positions) and columns count from 0. */
function tableOf({ rows, width, values }) {
  const numbers = (n) => Array.from({ length: n }, (_, i) => i);
  return {
    caption: t("positions.image", rows, width),
    head: ["", ...numbers(width).map(String)],
    rows: numbers(rows).map((r) => [String(r), ...numbers(width).map((c) => write(values[r * width + c]))]),
  };
}

/** Return the chosen code: a sinusoidal one computed here, or the one that the model adds. */
function chosenCode(trace) {
  const packed = trace ? trace.array(trace.raw.positions.code) : null;
  if (state.layout === "model" && packed)
    return { rows: packed.shape[0], width: packed.shape[1], values: packed.values };
  const layout = state.layout === "interleaved" ? "interleaved" : "halves";
  return { ...FIGURE, values: positionCode(FIGURE.rows, FIGURE.width, layout) };
}

function wave(code) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  const holder = el(".wave", {}, canvas);
  const draw = perFrame(() => {
    const width = holder.clientWidth;
    const context = sharpen(canvas, width, 90);
    const { values, width: n, rows } = code();
    const style = getComputedStyle(document.documentElement);
    for (let place = 0; place < 4; place++) {
      const column = Math.round((place * n) / 16);
      context.strokeStyle = style.getPropertyValue(place ? "--line-strong" : "--accent");
      context.lineWidth = 1.5;
      context.beginPath();
      for (let r = 0; r < rows; r++)
        context.lineTo(8 + (r * (width - 16)) / (rows - 1), 45 - 36 * values[r * n + column]);
      context.stroke();
    }
  });
  new ResizeObserver(draw).observe(holder);
  return { element: holder, update: draw };
}

export function positionsView(host, { trace }) {
  const hasOwn = Boolean(trace && trace.raw.positions.code);
  const options = [
    ["halves", t("positions.halves")],
    ["interleaved", t("positions.interleaved")],
  ];
  if (hasOwn) options.push(["model", t("positions.model", trace.raw.positions.kind)]);
  const layouts = choice(t("positions.layout"), options, state.layout, (layout) => change({ layout }));
  const image = codeImage();
  const note = el("p.note");
  const alike = matrixView(() => shownSimilarity(chosenCode(trace)));
  const waves = wave(() => chosenCode(trace));
  host.append(
    el("p.lead", {}, t("positions.lead")),
    el(".controls", {}, layouts.element),
    image.element,
    note,
    el("h3.title", {}, t("positions.waves")),
    el("p.note", {}, t("positions.waves.says")),
    waves.element,
    el("h3.title", {}, t("positions.similarity")),
    el("p.note", {}, t("positions.similarity.says")),
    alike.element,
  );
  if (trace) host.append(...biasPart(trace));
  if (trace && trace.source && trace.target)
    host.append(
      el("h3.title", {}, t("film.title")),
      el("p.note", {}, t("film.says")),
      filmView(trace),
    );

  function update() {
    layouts.set(state.layout);
    image.update(chosenCode(trace));
    note.textContent =
      state.layout === "model" ? t("positions.own", trace.raw.positions.kind) : t(`positions.${state.layout}.says`);
    alike.update();
    waves.update();
  }
  update();
  return update;
}

function shownSimilarity({ rows, width, values }) {
  const labels = Array.from({ length: rows }, (_, i) => String(i));
  const numbers = similarities(values, rows, width);
  const describe = (r, c) => ({ where: `${r} · ${c}`, value: write(numbers[r * rows + c]), more: [] });
  return {
    name: t("positions.similarity"),
    corner: "",
    rows: labels,
    columns: labels,
    values: numbers,
    describe,
    range: 1,
  };
}

/** Relative positions and ALiBi: a bias of each score instead of a code. */
function biasPart(trace) {
  const { bias, rows, kind } = trace.raw.positions;
  if (!bias || !bias.encoder) return [];
  let head = 0;
  const packed = trace.array(bias.encoder);
  const labels = Array.from({ length: rows }, (_, i) => String(i));
  const matrix = matrixView(() => {
    const values = packed.values.subarray(head * rows * rows, (head + 1) * rows * rows);
    const largest = values.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
    const describe = (r, c) => ({ where: `${r} → ${c}`, value: write(values[r * rows + c]), more: [] });
    return {
      name: t("positions.bias", kind, head + 1),
      corner: "",
      rows: labels,
      columns: labels,
      values,
      describe,
      range: largest,
    };
  });
  const options = Array.from({ length: packed.shape[0] }, (_, i) => [i, String(i + 1)]);
  const heads = choice(t("attention.heads"), options, 0, (value) => {
    head = Number(value);
    matrix.update();
  });
  matrix.update();
  return [
    el("h3.title", {}, t("positions.bias.title")),
    el("p.note", {}, t("positions.bias.says")),
    el(".controls", {}, heads.element),
    matrix.element,
  ];
}
