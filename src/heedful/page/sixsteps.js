/** One query through one head in six steps, with the actual numbers. */

import { el } from "./dom.js";
import { button, plainTable } from "./controls.js";
import { write } from "./numbers.js";
import { formula, stepCard, unitBar, vectorStrip } from "./vectors.js";
import { t } from "./words.js";

const MOST_HIDDEN = 2; // masked keys; they all have weight 0
const MOST_ROWS = 8; // keys with the largest weights; a button shows the others

/**
 * `facts`: {query, keys: [label], x, read (the name of x), q, k: [vector], v: [vector], scores, scaled, allowed, weights, z,
 * divisor, width, total, bias}. A vector is {first, norm}.
 */
export function sixSteps(facts) {
  return [
    keysAndValues(facts),
    scoresCard(facts),
    scaledCard(facts),
    softmaxCard(facts),
    weightedCard(facts),
    sumCard(facts),
  ];
}

/** Return the indices of the keys with the largest weights, in the order of the sentence. */
function heaviest(facts) {
  const order = facts.weights.map((weight, i) => [weight, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const open = order.filter(([, i]) => facts.allowed[i]).slice(0, MOST_ROWS);
  const hidden = order.filter(([, i]) => !facts.allowed[i]).slice(0, MOST_HIDDEN);
  return [...open, ...hidden].map(([, i]) => i).sort((a, b) => a - b);
}

/** A table of the keys; a long one shows the largest weights first. */
function keyTable(facts, caption, head, row) {
  const holder = el(".table-scroll", { tabindex: "0" });
  const few = heaviest(facts);
  const show = (numbers) => {
    const rows = numbers.map((i) => [facts.keys[i], ...row(i)]);
    holder.replaceChildren(
      plainTable({ caption, head: [t("walk.key"), ...head.map((text) => el("span", {}, ...formula(text)))], rows }),
    );
    if (numbers.length < facts.keys.length) {
      const left = facts.weights.reduce((sum, weight, i) => (numbers.includes(i) ? sum : sum + weight), 0);
      const all = button(t("walk.all", facts.keys.length), () => show(facts.keys.map((_, i) => i)));
      holder.append(el("p.note", {}, t("walk.others", facts.keys.length - numbers.length, write(left)), " ", all));
    }
  };
  show(few);
  return holder;
}

function keysAndValues(facts) {
  const read = facts.read || "x";
  const strips = [vectorStrip(read, facts.x, { total: facts.width }), vectorStrip("q", facts.q, { total: facts.total })];
  const table = keyTable(facts, t("walk.kv"), ["k", "v"], (i) => [
    vectorStrip("", facts.k[i], { total: facts.total }),
    vectorStrip("", facts.v[i], { total: facts.total }),
  ]);
  return stepCard(
    {
      number: "1",
      title: t("six.1"),
      formula: facts.formulas || `q = ${read} W_Q    k = y W_K    v = y W_V`,
      says: t("six.1.says", facts.query),
    },
    ...strips,
    table,
  );
}

function scoresCard(facts) {
  const table = keyTable(facts, t("six.2"), [facts.additive ? "score" : "q · k"], (i) => [write(facts.scores[i], 3)]);
  return stepCard(
    {
      narrow: true,
      number: "2",
      title: t("six.2"),
      formula: facts.additive ? "s_j = v · tanh(q + k_j)" : "s_j = q · k_j",
      says: t("six.2.says", facts.query),
    },
    table,
  );
}

function scaledCard(facts) {
  const bias = facts.bias ? ` + b` : "";
  const head = [`s_j`, `÷ ${write(facts.divisor, 3)}${bias}`];
  const table = keyTable(facts, t("six.3"), head, (i) => [write(facts.scores[i], 3), write(facts.scaled[i], 3)]);
  const says = facts.divisor === 1 ? t("six.3.none") : formula(t("six.3.says", facts.total, write(facts.divisor, 3)));
  return stepCard(
    {
      narrow: true,
      number: "3",
      title: t("six.3"),
      formula: `s_j ÷ √d_k = s_j ÷ ${write(facts.divisor, 3)}${bias}`,
      says,
    },
    table,
  );
}

function softmaxCard(facts) {
  const hidden = facts.allowed.filter((is) => !is).length;
  const says = hidden ? `${t("six.4.masked", hidden)} ${t("six.4.says")}` : t("six.4.says");
  const table = keyTable(facts, t("six.4"), ["s_j", "softmax"], (i) => [
    facts.allowed[i] ? write(facts.scaled[i], 3) : `${write(facts.scaled[i], 3)} → −∞`,
    unitBar(facts.weights[i]),
  ]);
  return stepCard(
    { narrow: true, number: "4", title: t("six.4"), formula: "a_j = exp(s_j) ÷ Σ exp(s_i)", says },
    table,
  );
}

function scaledVector(vector, weight) {
  return {
    first: [...vector.first].map((x) => x * weight),
    norm: vector.norm === undefined ? undefined : vector.norm * weight,
  };
}

function weightedCard(facts) {
  const table = keyTable(facts, t("six.5"), ["a_j", "a_j v_j"], (i) => [
    write(facts.weights[i]),
    vectorStrip("", scaledVector(facts.v[i], facts.weights[i]), { total: facts.total }),
  ]);
  return stepCard({ number: "5", title: t("six.5"), formula: "a_j v_j", says: t("six.5.says") }, table);
}

function sumCard(facts) {
  return stepCard(
    { number: "6", title: t("six.6"), formula: "z = Σ a_j v_j", says: t("six.6.says", facts.query) },
    vectorStrip("z", facts.z, { total: facts.total, digits: 3 }),
  );
}
