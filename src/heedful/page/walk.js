/** View 2: one token through one layer and head, with the model's numbers. */

import { chosenLayer, updateLayers } from "./attention.js";
import { el, foreign } from "./dom.js";
import { button, choice, listChoice } from "./controls.js";
import { write, writePercent } from "./numbers.js";
import { sixSteps } from "./sixsteps.js";
import { change, state } from "./state.js";
import { headMatrix, layersOf, sidesOf, vectorAt } from "./trace.js";
import { stepCard, unitBar, vectorStrip } from "./vectors.js";
import { t } from "./words.js";

const NORM_FORMULAS = { pre: "n = norm(x)", post: "x' = norm(x + o)", none: "x' = norm(o)" };
const WEIGHTS_OF = { attention: { encoder: "encoder", decoder: "decoder" }, cross_attention: { decoder: "cross" } };

/** Return the input tokens of a stack. */
function tokensOf(trace, side) {
  return side === "encoder" ? trace.source.tokens : trace.target.inputs;
}

function sidesIn(trace) {
  return ["encoder", "decoder"].filter((side) => trace.raw.walk[side]);
}

/** Return the stack to show: the chosen stack, if the model has it. */
export function chosenSide(trace) {
  const sides = sidesIn(trace);
  return sides.includes(state.side) ? state.side : sides[0];
}

function placeOf(trace) {
  const side = chosenSide(trace);
  const token = Math.max(0, Math.min(state.token, tokensOf(trace, side).length - 1));
  const head = Math.max(0, Math.min(state.head, trace.model.n_heads - 1));
  return { side, token, head, layer: chosenLayer(trace, side, 0) };
}

/** Collect the data of the six steps for one query of one head. */
function toldAbout(trace, { side, layer, head, token }, name, x) {
  const kind = WEIGHTS_OF[name][side];
  const part = trace.raw.walk[side].layers[layer][name];
  const { columns } = sidesOf(trace, kind);
  const row = (what) => {
    const matrix = headMatrix(trace, kind, what, layer, head);
    return matrix ? [...matrix.subarray(token * columns.length, (token + 1) * columns.length)] : columns.map(() => 1);
  };
  const scores = row("scores");
  const biases = part.bias ? biasRow(trace, side, head, token, columns.length) : null;
  const { scale } = part;
  return {
    query: tokensOf(trace, side)[token],
    keys: columns,
    x,
    read: readName(trace),
    q: vectorAt(trace, part.q, head, token),
    k: columns.map((_, i) => vectorAt(trace, part.k, head, i)),
    v: columns.map((_, i) => vectorAt(trace, part.v, head, i)),
    scores,
    scaled: scores.map((score, i) => score * scale + (biases ? biases[i] : 0)),
    allowed: row("mask").map(Boolean),
    weights: row("weights"),
    z: vectorAt(trace, part.heads, head, token),
    divisor: 1 / scale,
    bias: Boolean(biases),
    additive: trace.model.score === "additive",
    total: trace.model.d_head,
    width: trace.model.d_model,
  };
}

function biasRow(trace, side, head, token, n) {
  const bias = trace.raw.positions.bias ? trace.array(trace.raw.positions.bias[side]) : null;
  if (!bias || token >= bias.shape[1] || n > bias.shape[2]) return null;
  const start = (head * bias.shape[1] + token) * bias.shape[2];
  return [...bias.values.subarray(start, start + n)];
}

function startCards(trace, { side, token }) {
  const { start } = trace.raw.walk[side];
  const total = trace.model.d_model;
  const strip = (name, vector) => vectorStrip(name, vectorAt(trace, vector, token), { total });
  const cards = start.embedding ? embeddingCards(trace, tokensOf(trace, side)[token], start, strip) : [];
  if (start.position && start.embedding) {
    cards.push(
      stepCard(
        {
          title: t("walk.position"),
          formula: trace.model.embedding_scale === 1 ? "x = e + p" : "x = e' + p",
          says: t(trace.model.family === "bert" ? "walk.position.bert" : "walk.position.says", token),
        },
        strip("p", start.position),
        strip("x", start.input),
      ),
    );
  } else if (start.position) {
    cards.push(
      stepCard({ title: t("walk.patch"), says: t("walk.patch.says") }, strip("p", start.position), strip("x", start.input)),
    );
  } else cards.push(stepCard({ title: t("walk.position"), says: t("walk.position.none", trace.raw.positions.kind) }));
  if (start.norm)
    cards.push(stepCard({ title: t("walk.norm"), formula: "x' = norm(x)", says: t("walk.norm.first") }, strip("x'", start.norm)));
  return cards;
}

function embeddingCards(trace, piece, start, strip) {
  const scale = trace.model.embedding_scale;
  const cards = [
    stepCard(
      { title: t("walk.embedding"), formula: "e = E[id]", says: t("walk.embedding.says", piece) },
      strip("e", start.embedding),
    ),
  ];
  if (scale === 1) return cards;
  cards.push(
    stepCard(
      { title: t("walk.scaled"), formula: `e × √d_{model} = e × ${write(scale, 3)}`, says: t("walk.scaled.says") },
      strip("e'", start.scaled),
    ),
  );
  return cards;
}

function concatCard(trace, part, { head, token }) {
  const total = trace.model.d_head;
  const heads = Array.from({ length: trace.model.n_heads }, (_, h) => {
    const strip = vectorStrip(`z_{${h + 1}}`, vectorAt(trace, part.heads, h, token), { total });
    if (h === head) strip.classList.add("chosen");
    return strip;
  });
  const says = t("walk.concat.says", trace.model.n_heads, total, trace.model.n_heads * total);
  return stepCard(
    { title: t("walk.concat"), formula: `[z_1 … z_{${trace.model.n_heads}}]`, says },
    el("details", {}, el("summary", {}, t("walk.heads")), ...heads),
  );
}

function attentionCards(trace, place, name, x) {
  const part = trace.raw.walk[place.side].layers[place.layer][name];
  const out = vectorAt(trace, part.out, place.token);
  const titled = el(
    "li.divider",
    {},
    t(`walk.${name}`, place.head + 1),
    el("span", {}, t(`walk.${name}.${place.side}`)),
  );
  return [
    titled,
    ...sixSteps(toldAbout(trace, place, name, x)),
    concatCard(trace, part, place),
    stepCard(
      { title: t("walk.out"), formula: "o = [z_1 …] W_O", says: t("walk.out.says") },
      vectorStrip("o", out, { total: trace.model.d_model }),
    ),
  ];
}

/** Return the input of a sub-layer: with pre-norm, the normalised vector. */
function readName(trace) {
  return trace.model.residual === "pre" ? "n" : "x";
}

function feedForwardCards(trace, { side, layer, token }) {
  const part = trace.raw.walk[side].layers[layer].feed_forward;
  const { d_ff: total, d_model: width, activation } = trace.model;
  const strip = (name, vector, size) => vectorStrip(name, vectorAt(trace, vector, token), { total: size });
  return [
    el("li.divider", {}, t("walk.feed_forward"), el("span", {}, t("walk.feed_forward.says", width, total))),
    stepCard(
      { title: t("walk.inner"), formula: `h = ${readName(trace)} W_1 + b_1` },
      strip("h", part.inner, total),
      part.gate ? strip("g", part.gate, total) : null,
    ),
    stepCard(
      {
        title: t("walk.activated", activation),
        formula: part.gate
          ? `a = f(g) h`
          : activation === "relu"
            ? "a = max(0, h)"
            : `a = ${activation}(h)`,
      },
      strip("a", part.activated, total),
    ),
    stepCard({ title: t("walk.ffout"), formula: "o = a W_2 + b_2" }, strip("o", part.out, width)),
  ];
}

/** Return the cards of a layer in the model's order of computation, pre-norm or post-norm. */
function layerCards(trace, place) {
  const { side, layer, token } = place;
  const isPre = trace.model.residual === "pre";
  const numbers = trace.raw.walk[side].layers[layer];
  const total = trace.model.d_model;
  let x = vectorAt(trace, numbers.input, token); // the residual stream
  let read = x; // the input of the sub-layer
  const cards = [];
  for (const name of trace.raw.walk[side].steps) {
    if (name === "feed_forward") cards.push(...feedForwardCards(trace, place));
    else if (WEIGHTS_OF[name]) cards.push(...attentionCards(trace, place, name, read));
    else if (numbers[name]) {
      const vector = vectorAt(trace, numbers[name], token);
      const isNorm = name.endsWith(".norm");
      const card = isNorm
        ? stepCard(
            {
              title: t("walk.norm"),
              formula: NORM_FORMULAS[trace.model.residual],
              says: t(`walk.norm.${trace.model.norm}`),
            },
            vectorStrip(isPre ? "n" : "x'", vector, { total }),
          )
        : stepCard(
            { title: t("walk.added"), formula: "x + o", says: t("walk.added.says") },
            vectorStrip("x", x, { total }),
            vectorStrip("x + o", vector, { total }),
          );
      cards.push(card);
      read = vector;
      if (isNorm !== isPre) x = vector;
    }
  }
  return cards;
}

function endCards(trace, { side, token }) {
  const { end } = trace.raw.walk[side];
  const cards = [];
  if (end.mean) {
    cards.push(
      stepCard(
        { title: t("walk.mean"), formula: "m = Σ w_i x_i", says: t("walk.mean.says") },
        vectorStrip("m", vectorAt(trace, end.mean, token), { total: trace.model.d_model }),
      ),
    );
  }
  if (end.norm) {
    cards.push(
      stepCard(
        { title: t("walk.final"), formula: "m = norm(x)" },
        vectorStrip("m", vectorAt(trace, end.norm, token), { total: trace.model.d_model }),
      ),
    );
  }
  if (side === "encoder") {
    if (trace.target) cards.push(stepCard({ title: t("walk.memory"), says: t("walk.memory.says") }));
    return cards;
  }
  const step = trace.steps[token];
  const rows = step.top
    .slice(0, 5)
    .map((one) =>
      el(
        ".top-row",
        {},
        foreign(one.token),
        el("span", {}, write(one.logit, 3)),
        unitBar(one.probability, writePercent(one.probability)),
      ),
    );
  const sum = `exp(${write(step.logit, 3)} − ${write(step.log_sum, 3)}) = ${write(step.probability)}`;
  return [
    ...cards,
    stepCard(
      {
        title: t("walk.logits"),
        formula: trace.model.output_scale === 1 ? "logits = x Eᵀ" : `logits = x Eᵀ × ${write(trace.model.output_scale)}`,
        says: t("walk.logits.says", trace.model.vocab_size),
      },
      ...rows,
    ),
    stepCard({
      title: t("walk.probability"),
      formula: `p(${step.token}) = exp(logit − log Σ exp) = ${sum}`,
      says: t("walk.probability.says", step.token),
    }),
  ];
}

export function walkView(host, { trace }) {
  const sides = choice(
    t("walk.side"),
    sidesIn(trace).map((side) => [side, t(`walk.side.${side}`)]),
    chosenSide(trace),
    (side) => change({ side, token: 0 }),
  );
  const tokens = listChoice(t("walk.token"), [], 0, (token) => change({ token: Number(token) }));
  const heads = listChoice(
    t("walk.head"),
    Array.from({ length: trace.model.n_heads }, (_, i) => [i, String(i + 1)]),
    state.head,
    (head) => change({ head: Number(head) }),
  );
  const layerHost = el("span");
  const list = el("ol.cards");
  host.append(
    el("p.lead", {}, t("walk.lead", trace.raw.walk.numbers)),
    el(".controls.sticky", {}, sides.element, tokens.element, layerHost, heads.element),
    list,
  );

  function update() {
    const place = placeOf(trace);
    const last = layersOf(trace, place.side) - 1;
    sides.set(place.side);
    sides.element.hidden = sidesIn(trace).length === 1;
    tokens.fill(
      tokensOf(trace, place.side).map((piece, i) => [i, `${i + 1}  ${piece}`]),
      place.token,
    );
    heads.set(place.head);
    updateLayers(layerHost, trace, place.side, 0);
    const next = button(t("walk.next", place.layer + 2), () => {
      change({ layer: place.layer + 1 });
      list.scrollIntoView();
    });
    list.replaceChildren(
      ...(place.layer === 0
        ? startCards(trace, place)
        : [
            el("li.divider", {}, t("walk.enters", place.layer + 1), el("span", {}, t(`walk.enters.${trace.model.family === "universal" ? "step" : "says"}`, place.layer))),
          ]),
      ...layerCards(trace, place),
      ...(place.layer === last ? endCards(trace, place) : [el("li.card.next", {}, next)]),
    );
  }
  update();
  return update;
}
