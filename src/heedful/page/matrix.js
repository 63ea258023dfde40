/** A matrix on a canvas that draws only the visible part, with the exact value of a cell and a table. */

import { colourOf, el, paintPiece, perFrame, pieceNodes, sharpen } from "./dom.js";
import { inkOn, shade, signedShade } from "./colour.js";
import { tableView } from "./controls.js";
import { write } from "./numbers.js";
import { isMark } from "./trace.js";
import { t } from "./words.js";

const FONT = 13;
const SMALLEST_CELL = 16;
const LARGEST_CELL = 34;
const MOVES = {
  ArrowUp: [-1, 0],
  ArrowDown: [1, 0],
  ArrowLeft: [0, -1],
  ArrowRight: [0, 1],
  PageUp: [-10, 0],
  PageDown: [10, 0],
  Home: [0, -1e9],
  End: [0, 1e9],
};

/**
 * `shown()` returns {name, rows, columns, values, describe(r, c), marked, range, unit}: the labels, the numbers row by
 * row, the texts of one cell ({where, value, more}), the cells with a ring (row × columns + column), the range of the
 * colours ("unit" for 0 to 1, or the largest absolute value of signed numbers), and the unit of the scale.
 */
export function matrixView(shown) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  const space = el(".matrix-space", {}, canvas);
  const scroller = el(".matrix-scroll", { tabindex: "0", role: "img" }, space);
  const readout = el("p.readout", { role: "status" }, t("matrix.hint"));
  const tip = el(".tip", { "aria-hidden": "true", hidden: true });
  const table = tableView(t("matrix.table"), () => tableOf(shown()));
  const scale = el(".scale", { "aria-hidden": "true" });
  const element = el("figure.matrix", {}, scroller, scale, readout, tip, table.element);
  const view = { canvas, space, scroller, readout, tip, cursor: null, pinned: null, layout: null, data: null };

  const draw = perFrame(() => paint(view));
  scroller.addEventListener("scroll", draw, { passive: true });
  scroller.addEventListener("pointermove", (event) => point(view, event, draw));
  scroller.addEventListener("pointerdown", (event) => point(view, event, draw));
  scroller.addEventListener("pointerleave", () => leave(view, draw));
  scroller.addEventListener("click", (event) => {
    const cell = cellAt(view, event);
    view.pinned = cell && !same(cell, view.pinned) ? cell : null;
    draw();
  });
  scroller.addEventListener("keydown", (event) => press(view, event, draw));
  scroller.addEventListener("blur", () => leave(view, draw));
  new ResizeObserver(() => {
    if (view.data) {
      view.layout = measure(view);
      draw();
    }
  }).observe(element);

  function update() {
    view.data = shown();
    view.layout = measure(view);
    scroller.setAttribute("aria-label", `${view.data.name}. ${t("matrix.keys")}`);
    if (view.cursor && !inside(view, view.cursor)) view.cursor = null;
    if (view.pinned && !inside(view, view.pinned)) view.pinned = null;
    say(view, view.cursor || view.pinned);
    scale.replaceChildren(...scaleOf(view.data));
    table.refresh();
    draw();
  }
  return { element, update };
}

/** The scale of the colours, with its ends and the unit. */
function scaleOf({ range, unit }) {
  const isUnit = range === "unit";
  const steps = Array.from({ length: 24 }, (_, i) => {
    const step = el("i");
    step.style.backgroundColor = isUnit ? shade((i + 0.5) / 24) : signedShade((i - 11.5) / 12, 1);
    return step;
  });
  if (isUnit) return ["0", el("span.steps-of-scale", {}, steps), "1"];
  const largest = unit ? `${write(range, 2)} ${unit}` : write(range, 2);
  return [write(-range, 2), el("span.steps-of-scale", {}, steps), largest];
}

function same(a, b) {
  return Boolean(a && b && a[0] === b[0] && a[1] === b[1]);
}

function inside(view, [r, c]) {
  return r < view.data.rows.length && c < view.data.columns.length;
}

/** Compute the sizes of the cells, the margins and the whole matrix. */
function measure(view) {
  const { rows, columns } = view.data;
  const context = view.canvas.getContext("2d");
  context.font = `${FONT}px ${colourOf("--sans")}`;
  const widest = (labels) => labels.reduce((most, label) => Math.max(most, context.measureText(label).width), 0);
  const room = view.scroller.parentElement.clientWidth - 2; // its border
  const left = Math.min(Math.ceil(widest(rows)) + 18, Math.max(72, room * 0.3), 170);
  const slant = Math.min(widest(columns), 120);
  const top = Math.ceil(slant * 0.72) + 20;
  const ahead = Math.ceil(slant * 0.7); // space for the last slanted label
  const cell = Math.max(SMALLEST_CELL, Math.min(LARGEST_CELL, Math.floor((room - left - ahead) / columns.length)));
  const width = left + columns.length * cell + ahead;
  const height = top + rows.length * cell + 6;
  view.space.style.width = `${width}px`;
  view.space.style.height = `${height}px`;
  return { left, top, cell, width, height };
}

function paint(view) {
  const { scroller, canvas, layout, data } = view;
  if (!data || !scroller.isConnected) return;
  const width = Math.min(scroller.clientWidth, layout.width);
  const height = Math.min(scroller.clientHeight, layout.height);
  const context = sharpen(canvas, width, height);
  const { left, top, cell } = layout;
  const x0 = scroller.scrollLeft;
  const y0 = scroller.scrollTop;
  const sight = {
    rows: [Math.max(0, Math.floor(y0 / cell)), Math.min(data.rows.length, Math.ceil((y0 + height - top) / cell))],
    columns: [Math.max(0, Math.floor(x0 / cell)), Math.min(data.columns.length, Math.ceil((x0 + width - left) / cell))],
  };
  context.save();
  context.beginPath();
  context.rect(left, top, width - left, height - top);
  context.clip();
  const colours = coloursNow();
  paintCells(context, view, sight, [x0, y0], colours);
  context.restore();
  paintRowLabels(context, view, sight, [y0, height], colours);
  paintColumnLabels(context, view, sight, [x0, width], colours);
}

function paintCells(context, view, { rows, columns }, [x0, y0], colours) {
  const { data, layout, cursor, pinned } = view;
  const { left, top, cell } = layout;
  const n = data.columns.length;
  const gap = cell > 18 ? 1 : 0.5;
  for (let r = rows[0]; r < rows[1]; r++) {
    for (let c = columns[0]; c < columns[1]; c++) {
      const value = data.values[r * n + c];
      context.globalAlpha = data.dim && (isMark(data.columns[c]) || isMark(data.rows[r])) ? 0.25 : 1;
      context.fillStyle = data.range === "unit" ? shade(value) : signedShade(value, data.range);
      context.fillRect(left + c * cell - x0, top + r * cell - y0, cell - gap, cell - gap);
      if (data.marked && data.marked.has(r * n + c)) ring(context, layout, [r, c], [x0, y0], inkOn(value));
    }
  }
  context.globalAlpha = 1;
  context.lineWidth = 2;
  for (const [place, colour] of [
    [pinned, colours.ink],
    [cursor, colours.accent],
  ]) {
    if (!place) continue;
    context.strokeStyle = colour;
    context.strokeRect(left + place[1] * cell - x0 - 0.5, top + place[0] * cell - y0 - 0.5, cell, cell);
  }
}

function ring(context, { left, top, cell }, [r, c], [x0, y0], ink) {
  context.strokeStyle = ink;
  context.lineWidth = 1.5;
  context.beginPath();
  context.arc(left + (c + 0.5) * cell - x0 - 0.5, top + (r + 0.5) * cell - y0 - 0.5, cell * 0.22, 0, 2 * Math.PI);
  context.stroke();
}

function labelColour(colours, label, isHere) {
  return isHere ? colours.accent : isMark(label) ? colours.faint : colours.ink;
}

/** Read the colours once per frame, because reading computed styles is slow. */
function coloursNow() {
  const of = { accent: "--accent", ink: "--ink", faint: "--faint", pale: "--line-strong", font: "--sans" };
  return Object.fromEntries(Object.entries(of).map(([name, property]) => [name, colourOf(property)]));
}

function paintRowLabels(context, view, { rows }, [y0, height], colours) {
  const { data, layout, cursor } = view;
  context.save();
  context.beginPath();
  context.rect(0, layout.top, layout.left, height - layout.top);
  context.clip();
  context.textBaseline = "middle";
  for (let r = rows[0]; r < rows[1]; r++) {
    const isHere = cursor && cursor[0] === r;
    context.font = `${isHere ? "600 " : ""}${FONT}px ${colours.font}`;
    context.fillStyle = labelColour(colours, data.rows[r], isHere);
    const label = shorten(context, data.rows[r], layout.left - 14);
    paintPiece(context, label, [layout.left - 9, layout.top + (r + 0.5) * layout.cell - y0], colours.pale, "right");
  }
  context.restore();
}

function paintColumnLabels(context, view, { columns }, [x0, width], colours) {
  const { data, layout, cursor } = view;
  context.save();
  context.beginPath();
  context.rect(layout.left - 8, 0, width - layout.left + 8, layout.top);
  context.clip();
  context.textBaseline = "middle";
  for (let c = columns[0]; c < columns[1]; c++) {
    const isHere = cursor && cursor[1] === c;
    context.font = `${isHere ? "600 " : ""}${FONT}px ${colours.font}`;
    context.fillStyle = labelColour(colours, data.columns[c], isHere);
    context.save();
    context.translate(layout.left + (c + 0.5) * layout.cell - x0, layout.top - 8);
    context.rotate(-Math.PI / 4);
    paintPiece(context, shorten(context, data.columns[c], 120), [0, 0], colours.pale);
    context.restore();
  }
  context.restore();
}

function shorten(context, label, room) {
  if (context.measureText(label).width <= room) return label;
  const letters = [...label];
  while (letters.length > 1 && context.measureText(`${letters.join("")}…`).width > room) letters.pop();
  return `${letters.join("")}…`;
}

function cellAt(view, event) {
  const box = view.scroller.getBoundingClientRect();
  const { left, top, cell } = view.layout;
  const x = event.clientX - box.left - left;
  const y = event.clientY - box.top - top;
  if (x < 0 || y < 0) return null;
  const place = [Math.floor((y + view.scroller.scrollTop) / cell), Math.floor((x + view.scroller.scrollLeft) / cell)];
  return inside(view, place) ? place : null;
}

function point(view, event, draw) {
  const cell = cellAt(view, event);
  showTip(view, cell, event.clientX, event.clientY);
  if (same(cell, view.cursor)) return;
  view.cursor = cell;
  say(view, cell || view.pinned);
  draw();
}

function leave(view, draw) {
  view.cursor = null;
  view.tip.hidden = true;
  say(view, view.pinned);
  draw();
}

function showTip(view, cell, x, y) {
  view.tip.hidden = !cell;
  if (!cell) return;
  const words = view.data.describe(...cell);
  view.tip.replaceChildren(
    el("strong", {}, words.value),
    el("bdi", {}, ...pieceNodes(words.where)),
    ...words.more.map((line) => el("span", {}, line)),
  );
  const room = document.documentElement.clientWidth;
  view.tip.style.left = `${Math.max(8, Math.min(x + 14, room - view.tip.offsetWidth - 8))}px`;
  view.tip.style.top = `${Math.max(8, y - view.tip.offsetHeight - 12)}px`;
}

function say(view, cell) {
  if (!cell) {
    view.readout.textContent = t("matrix.hint");
    return;
  }
  const words = view.data.describe(...cell);
  view.readout.replaceChildren(
    el("bdi", {}, ...pieceNodes(words.where)),
    " ",
    el("strong", {}, words.value),
    " ",
    words.more.join(" · "),
  );
}

function press(view, event, draw) {
  const next = cellAfter(event, view.cursor, [view.data.rows.length, view.data.columns.length]);
  if (event.key === "Enter" || event.key === " ") view.pinned = same(view.cursor, view.pinned) ? null : view.cursor;
  else if (event.key === "Escape") view.cursor = view.pinned = null;
  else if (next) move(view, next);
  else return;
  event.preventDefault();
  say(view, view.cursor || view.pinned);
  draw();
}

/** Return the cell after a key press, or undefined if the key does not move. */
export function cellAfter(event, cell, [nRows, nColumns]) {
  if (!MOVES[event.key] || event.ctrlKey || event.metaKey || event.altKey) return null;
  const [down, right] = MOVES[event.key];
  const clamp = (x, n) => Math.max(0, Math.min(n - 1, x));
  const [r, c] = cell || [-Math.sign(down), -Math.sign(right)];
  return [clamp(r + down, nRows), clamp(c + right, nColumns)];
}

/** Move to the next cell and scroll it into view. */
function move(view, next) {
  view.cursor = next;
  const { left, top, cell } = view.layout;
  const box = view.scroller;
  const x = view.cursor[1] * cell;
  const y = view.cursor[0] * cell;
  box.scrollLeft = Math.min(x, Math.max(box.scrollLeft, x + cell - (box.clientWidth - left)));
  box.scrollTop = Math.min(y, Math.max(box.scrollTop, y + cell - (box.clientHeight - top)));
}

function tableOf(data) {
  const n = data.columns.length;
  const rows = data.rows.map((label, r) => [label, ...data.columns.map((_, c) => data.describe(r, c).value)]);
  return { caption: data.name, head: [data.corner || "", ...data.columns], rows: n ? rows : [] };
}
