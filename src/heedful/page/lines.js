/** Attention as lines between two columns of tokens; width and opacity show the weight, the colour the head. */

import { el, foreign, perFrame, sharpen } from "./dom.js";
import { headColour, inkOn, shade } from "./colour.js";
import { write } from "./numbers.js";
import { isMark } from "./trace.js";
import { t } from "./words.js";

const ROW = 30; // pixels, as in the style sheet
const FAINTEST = 0.02; // lines of smaller weights are invisible

/** `shown()` returns {rows, columns, heads: [{number, values}], from, to}; `pick(row)` chooses the query to keep. */
export function linesView(shown, pick) {
  const left = el("ol.tokens.from");
  const right = el("ol.tokens.to");
  const canvas = el("canvas", { "aria-hidden": "true" });
  const scroller = el(".lines-scroll", {}, el(".lines", {}, left, el(".between", {}, canvas), right));
  const readout = el("p.readout", { role: "status" }, t("lines.hint"));
  const heading = el(".lines-heading");
  const view = { left, right, canvas, scroller, readout, hover: null, chosen: null, data: null };
  const draw = perFrame(() => paint(view));
  scroller.addEventListener("scroll", draw, { passive: true });
  new ResizeObserver(draw).observe(scroller);

  function tokens(list, labels, side) {
    list.replaceChildren(
      ...labels.map((label, i) => {
        const see = (here) => () => {
          view.hover = here ? { side, i } : null;
          mark(view);
          draw();
        };
        const act = () => {
          view.chosen = view.chosen && view.chosen.side === side && view.chosen.i === i ? null : { side, i };
          if (side === "from") pick(view.chosen ? i : -1);
          mark(view);
          draw();
        };
        const button = el(
          "button",
          {
            type: "button",
            onclick: act,
            onpointerenter: see(true),
            onpointerleave: see(false),
            onfocus: see(true),
            onblur: see(false),
          },
          foreign(label, "bdi"),
          el("span.weight"),
        );
        if (isMark(label)) button.classList.add("mark");
        return el("li", {}, button);
      }),
    );
  }

  function update(row) {
    view.data = shown();
    view.chosen = row >= 0 && row < view.data.rows.length ? { side: "from", i: row } : null;
    heading.replaceChildren(el("span", {}, view.data.from), el("span", {}, view.data.to));
    tokens(left, view.data.rows, "from");
    tokens(right, view.data.columns, "to");
    mark(view);
    draw();
  }
  return { element: el("figure.lines-figure", {}, heading, scroller, readout), update };
}

/** Return the mean weight over the heads between query r and key c. */
function weightAt({ heads, columns }, r, c) {
  return heads.reduce((sum, head) => sum + head.values[r * columns.length + c], 0) / heads.length;
}

/** Shade the tokens of the other column by their weights, and show the numbers. */
function mark(view) {
  const { data } = view;
  const focus = view.hover || view.chosen;
  const lists = { from: [...view.left.children], to: [...view.right.children] };
  for (const side of ["from", "to"]) {
    lists[side].forEach((item, i) => {
      const button = item.firstChild;
      const isOther = focus && focus.side !== side;
      const weight = isOther ? (side === "to" ? weightAt(data, focus.i, i) : weightAt(data, i, focus.i)) : 0;
      button.style.backgroundColor = isOther ? shade(weight) : "";
      button.style.color = isOther ? inkOn(weight) : "";
      button.lastChild.textContent = isOther && weight >= 0.005 ? write(weight, 2) : "";
      button.setAttribute(
        "aria-pressed",
        String(Boolean(view.chosen && view.chosen.side === side && view.chosen.i === i)),
      );
      button.classList.toggle("here", Boolean(focus && focus.side === side && focus.i === i));
    });
  }
  view.readout.textContent = focus ? sentence(data, focus) : t("lines.hint");
}

/** Describe the three largest weights in words, for screen readers. */
function sentence(data, focus) {
  const isQuery = focus.side === "from";
  const others = isQuery ? data.columns : data.rows;
  const pairs = others.map((label, i) => [label, isQuery ? weightAt(data, focus.i, i) : weightAt(data, i, focus.i)]);
  pairs.sort((a, b) => b[1] - a[1]);
  const list = pairs
    .slice(0, 3)
    .map(([label, weight]) => `${label} ${write(weight)}`)
    .join(", ");
  return t(isQuery ? "lines.looks" : "lines.seen", (isQuery ? data.rows : data.columns)[focus.i], list);
}

function paint(view) {
  const { data, canvas, scroller } = view;
  if (!data || !scroller.isConnected) return;
  const width = canvas.parentElement.clientWidth;
  const height = Math.min(scroller.clientHeight, Math.max(data.rows.length, data.columns.length) * ROW);
  const context = sharpen(canvas, width, height);
  const focus = view.hover || view.chosen;
  const n = data.columns.length;
  const y = (i) => (i + 0.5) * ROW - scroller.scrollTop;
  data.heads.forEach(({ number, values }, place) => {
    context.strokeStyle = headColour(number);
    const shift = (place - (data.heads.length - 1) / 2) * Math.min(2.5, 14 / data.heads.length);
    for (let r = 0; r < data.rows.length; r++) {
      if (focus && focus.side === "from" && focus.i !== r) continue;
      for (let c = 0; c < n; c++) {
        if (focus && focus.side === "to" && focus.i !== c) continue;
        const weight = values[r * n + c];
        if (weight < FAINTEST) continue;
        line(context, [y(r) + shift, y(c) + shift], width, weight, Boolean(focus));
      }
    }
  });
}

function line(context, [from, to], width, weight, isAlone) {
  context.globalAlpha = isAlone ? 0.15 + 0.85 * weight : 0.8 * weight;
  context.lineWidth = isAlone ? 1 + 4 * weight : 0.6 + 2.4 * weight;
  context.beginPath();
  context.moveTo(0, from);
  context.bezierCurveTo(width * 0.4, from, width * 0.6, to, width, to);
  context.stroke();
}
