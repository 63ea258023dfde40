/** View 7: examples. "Thinking Machines" of The Illustrated Transformer, and the pronoun "it". */

import thinkingMachines from "./thinking_machines.js";
import { lookCommand } from "./command.js";
import { el } from "./dom.js";
import { button } from "./controls.js";
import { matrixView } from "./matrix.js";
import { write } from "./numbers.js";
import { sixSteps } from "./sixsteps.js";
import { formula } from "./vectors.js";
import { t } from "./words.js";

const SHOWN = 8; // numbers of a vector of 64
const ANIMAL = "The animal didn't cross the street because it was too";

function cut(vector) {
  return { first: vector.slice(0, SHOWN), norm: Math.hypot(...vector) };
}

/** The six steps of "Thinking Machines": scores ÷ 8, weights 0.88 and 0.12. */
function thinkingCards(query) {
  const { words, x, q, k, v, scores, scale, scaled, weights, z } = thinkingMachines;
  return sixSteps({
    query: words[query],
    keys: words,
    x: { first: x[query], norm: Math.hypot(...x[query]) },
    q: cut(q[query]),
    k: k.map(cut),
    v: v.map(cut),
    scores: scores[query],
    scaled: scaled[query],
    allowed: words.map(() => true),
    weights: weights[query],
    z: cut(z[query]),
    divisor: scale,
    total: q[0].length,
    width: x[0].length,
    formulas: "q = x W_Q    k = x W_K    v = x W_V",
  });
}

function weightMatrix(name, rows) {
  const largest = Math.max(...rows.flat().map(Math.abs));
  const width = rows[0].length;
  const values = Float32Array.from(rows.flat());
  const labels = (n) => Array.from({ length: n }, (_, i) => String(i + 1));
  const describe = (r, c) => ({ where: `${name}[${r + 1}, ${c + 1}]`, value: write(values[r * width + c]), more: [] });
  const view = matrixView(() => ({
    name,
    corner: "",
    rows: labels(rows.length),
    columns: labels(width),
    values,
    describe,
    range: largest,
  }));
  view.update();
  return el("details.weights", {}, el("summary", {}, ...formula(name), ` · ${rows.length} × ${width}`), view.element);
}

/** Return a pair from English to the preferred target, else to the first target; null if no model reads English. */
export function englishPair(languages, preferred) {
  for (const { code, targets } of languages) {
    const others = targets.filter((target) => target !== code);
    if (code.split(/[-_]/)[0] === "en" && others.length)
      return { from: code, to: others.includes(preferred) ? preferred : others[0] };
  }
  return null;
}

/** A button that looks at an English sentence, with a message if that fails. */
function lookButton(text, lookAt) {
  const message = el("span.note", { role: "status" });
  const act = async () => {
    try {
      message.textContent = (await lookAt(text)) ? "" : t("examples.noEnglish");
    } catch (error) {
      message.textContent = t("app.error", error.message);
    }
  };
  return el(".example-act", {}, button(t("examples.look"), act, { class: "primary" }), message);
}

export function examplesView(host, context) {
  const { words, w_q: wQ, w_k: wK, w_v: wV } = thinkingMachines;
  const cards = el("ol.cards");
  let query = 0;
  const chips = words.map((word, i) =>
    button(word, () => {
      query = i;
      show();
    }),
  );
  function show() {
    chips.forEach((chip, i) => chip.setAttribute("aria-pressed", String(i === query)));
    cards.replaceChildren(...thinkingCards(query));
  }
  show();
  const animals = ["tired", "wide"].map((word) => {
    const text = `${ANIMAL} ${word}.`;
    const act = context.lookAt
      ? lookButton(text, context.lookAt)
      : el("pre.command", {}, lookCommand(text, context.trace.model.name, `--output ${word}.html`));
    return el("li", {}, el("p.example", { lang: "en" }, `${ANIMAL} `, el("mark", {}, word), "."), act);
  });
  host.append(
    el("h3.title", {}, t("examples.thinking")),
    el("p.note", {}, t("examples.thinking.says")),
    weightMatrix("W_Q", wQ),
    weightMatrix("W_K", wK),
    weightMatrix("W_V", wV),
    el(".controls", {}, el(".chips", {}, chips)),
    cards,
    el("h3.title", {}, t("examples.animal")),
    el("p.note", {}, t("examples.animal.says")),
    el("ul.animals", {}, animals),
  );
  return () => {};
}
