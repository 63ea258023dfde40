/** View 6: layers. Predictions after fewer layers, the effect of each source word, and ablations. */

import { el, foreign, marked } from "./dom.js";
import { causesPart } from "./causes.js";
import { inkOn, shade } from "./colour.js";
import { lookCommand } from "./command.js";
import { button, choice, listChoice, tableView } from "./controls.js";
import { matrixView } from "./matrix.js";
import { write, writePercent } from "./numbers.js";
import { labelsOf } from "./trace.js";
import { t } from "./words.js";

/** Whether the "layers" are steps: the lens of a Universal Transformer is the model with fewer steps. */
function hasSteps(trace) {
  return trace.model.family === "universal";
}

function layerName(trace, layer) {
  if (hasSteps(trace)) return layer === 0 ? t("lens.step.before") : t("lens.step", layer);
  return layer === 0 ? t("lens.before") : t("lens.after", layer);
}

/** A table with layers as rows (the last on top), steps as columns, and the most probable token in each cell. */
function lensTable(trace, layers, readout) {
  const { tokens, inputs } = trace.target;
  const body = layers.map((entry, i) => {
    const cells = entry.steps.map((step, s) => {
      const first = step.top[0];
      const say = () => {
        const list = step.top.map((one) => `${one.token} ${writePercent(one.probability)}`).join(", ");
        readout.textContent = t(
          "lens.cell",
          layerName(trace, i),
          inputs[s],
          list,
          tokens[s],
          writePercent(step.probability),
          step.rank + 1,
        );
      };
      const cell = el("td", { tabindex: "-1", onpointerenter: say, onfocus: say }, foreign(first.token, "bdi"));
      cell.style.backgroundColor = shade(first.probability * 0.85);
      cell.style.color = inkOn(first.probability * 0.85);
      if (first.id === trace.target.ids[s]) cell.classList.add("agrees");
      return cell;
    });
    return el("tr", {}, el("th", { scope: "row" }, layerName(trace, i)), cells);
  });
  const head = el(
    "tr",
    {},
    el("td"),
    tokens.map((piece) => el("th", { scope: "col" }, foreign(piece, "bdi"))),
  );
  const table = el("table.lens", {}, el("thead", {}, head), el("tbody", {}, body.toReversed()));
  table.addEventListener("keydown", (event) => walkCells(event));
  const start = table.querySelector("tbody td");
  if (start) start.setAttribute("tabindex", "0");
  return table;
}

/** Move from cell to cell with the arrow keys. */
function walkCells(event) {
  const cell = event.target.closest("td");
  const by = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] }[event.key];
  if (!cell || !by) return;
  const rows = [...cell.closest("tbody").rows];
  const row = rows[rows.indexOf(cell.parentElement) + by[0]];
  const next = row && row.cells[cell.cellIndex + by[1]];
  event.preventDefault();
  if (!next || next.tagName !== "TD") return;
  cell.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}

function lensPart(trace, name) {
  const readout = el("p.readout", { role: "status" }, t("lens.hint"));
  const layers = trace.raw.lens[name];
  const holder = el(".table-scroll.lens-scroll", {}, lensTable(trace, layers, readout));
  const table = tableView(t("matrix.table"), () => ({
    caption: t(`lens.${name}`),
    head: ["", ...trace.target.tokens],
    rows: layers.map((entry, i) => [
      layerName(trace, i),
      ...entry.steps.map((step) => `${step.top[0].token} ${writePercent(step.top[0].probability)}`),
    ]),
  }));
  return el(
    "section",
    {},
    el("h3.title", {}, t(`lens.${name}`)),
    el("p.note", {}, t(`lens.${name}.${hasSteps(trace) ? "steps" : "says"}`)),
    holder,
    readout,
    table.element,
  );
}

/** The decoder's greedy translation from each encoder layer. */
function earlierTexts(trace) {
  const rows = trace.raw.lens.encoder.map((entry, i) =>
    el("li", {}, el("span.note", {}, layerName(trace, i)), foreign(entry.text || "–")),
  );
  return el("ol.earlier", {}, rows.toReversed());
}

/** The weight of each step of a Universal Transformer in the output of each token. */
function thinkingPart(trace, side) {
  const packed = trace.array(trace.raw.halting[side]);
  const [nSteps, nTokens] = packed.shape;
  const rows = Array.from({ length: nSteps }, (_, i) => String(i + 1));
  const columns = side === "encoder" ? trace.source.tokens : trace.target.inputs;
  const matrix = matrixView(() => ({
    name: t(`halting.${side}`),
    corner: t("halting.corner"),
    rows,
    columns,
    values: packed.values,
    describe: (r, c) => ({ where: `${columns[c]}, ${rows[r]}`, value: write(packed.values[r * nTokens + c]), more: [] }),
    range: "unit",
  }));
  matrix.update();
  return el("section.thinking", {}, el("h3.title", {}, t(`halting.${side}`)), el("p.note", {}, t("halting.says")), matrix.element);
}

function changedPart(trace) {
  const { changes } = trace.raw;
  if (!changes) return null;
  const words = labelsOf(trace, "encoder", true).rows;
  const list = [
    ...changes.without_heads.map((one) => t("change.head", t(`kind.${one.kind}`), one.layer + 1, one.head + 1)),
    ...changes.masked_words.map((word) => t("change.word", words[word])),
  ];
  const bars = changes.steps.map((step) =>
    el(
      "li",
      {},
      foreign(step.token),
      el("span.before-after", {}, writePercent(step.before), " → ", el("strong", {}, writePercent(step.after))),
      el("span.note", {}, write(step.after - step.before, 3)),
    ),
  );
  return el(
    "section.changed",
    {},
    el("h3.title", {}, t("change.title")),
    el("p", {}, list.join(" · ")),
    el(
      "dl.two",
      {},
      el("dt", {}, t("change.before")),
      el("dd", {}, el("bdi", { dir: "auto" }, changes.before.text), ` (${write(changes.before.score, 3)})`),
      el("dt", {}, t("change.after")),
      el(
        "dd",
        {},
        el("bdi", { dir: "auto" }, trace.raw.translation.text),
        ` (${write(trace.raw.translation.score, 3)})`,
      ),
    ),
    el("p.note", {}, t("change.steps")),
    el("ul.changes", {}, bars),
  );
}

/** A form to ablate heads and mask words, for a page with a server. */
function changeForm({ trace, lookWithout }) {
  const heads = [];
  const words = new Set();
  const list = el("p.note", { role: "status" });
  const show = () => {
    const names = heads.map((one) => t("change.head", t(`kind.${one.kind}`), one.layer + 1, one.head + 1));
    list.textContent = names.length ? names.join(" · ") : t("change.none");
  };
  let chosen = { kind: "cross", layer: 0, head: 0 };
  const count = (n) => Array.from({ length: n }, (_, i) => [i, String(i + 1)]);
  const layersOfKind = () => {
    if (trace.model.family === "universal") return count(1); // one layer, shared by all steps
    return count(chosen.kind === "encoder" ? trace.model.n_encoder_layers : trace.model.n_decoder_layers);
  };
  const layer = listChoice(
    t("attention.layer"),
    layersOfKind(),
    0,
    (value) => (chosen = { ...chosen, layer: Number(value) }),
  );
  const head = listChoice(
    t("walk.head"),
    count(trace.model.n_heads),
    0,
    (value) => (chosen = { ...chosen, head: Number(value) }),
  );
  const kind = choice(
    t("attention.kind"),
    ["cross", "encoder", "decoder"].map((name) => [name, t(`short.${name}`)]),
    "cross",
    (value) => {
      chosen = { ...chosen, kind: value, layer: 0 };
      layer.fill(layersOfKind(), 0);
    },
  );
  const add = button(t("change.add"), () => {
    if (!heads.some((one) => JSON.stringify(one) === JSON.stringify(chosen))) heads.push(chosen);
    show();
  });
  const chips = labelsOf(trace, "encoder", true).rows.map((word, i) =>
    button(
      word,
      (event) => {
        if (!words.delete(i)) words.add(i);
        event.currentTarget.setAttribute("aria-pressed", String(words.has(i)));
      },
      { "aria-pressed": "false", dir: "auto" },
    ),
  );
  const run = button(t("change.run"), () => lookWithout(heads, [...words]), { class: "primary" });
  show();
  return el(
    "section",
    {},
    el("h3.title", {}, t("change.try")),
    el("p.note", {}, t("change.says")),
    el(".controls", {}, kind.element, layer.element, head.element, add),
    list,
    el("p.note", {}, t("change.words")),
    el(".chips", {}, chips.slice(0, -1)),
    el(".controls", {}, run),
  );
}

export function layersView(host, context) {
  const { trace } = context;
  host.append(el("p.lead", {}, t("lens.lead")));
  const changed = changedPart(trace);
  if (changed) host.append(changed);
  host.append(lensPart(trace, "decoder"));
  if (trace.raw.lens.encoder)
    host.append(lensPart(trace, "encoder"), el("h4", {}, t("lens.texts")), earlierTexts(trace));
  if (trace.raw.halting) host.append(thinkingPart(trace, "encoder"), thinkingPart(trace, "decoder"));
  if (!trace.source) return () => {}; // a GPT's look has no ablations
  const causes = causesPart(trace);
  if (causes) host.append(causes);
  host.append(
    context.lookWithout
      ? changeForm(context)
      : el(
          "section",
          {},
          el("h3.title", {}, t("change.try")),
          el("p.note", {}, ...marked(t("change.standalone"))),
          el("pre.command", {}, commandFor(trace)),
        ),
  );
  return () => {};
}

/** Return an example command with an ablated head and a masked word, for a file opened from disk. */
function commandFor(trace) {
  return lookCommand(trace.source.text, trace.model.name, "--without cross:1:1 --hide 2 --output changed.html");
}
