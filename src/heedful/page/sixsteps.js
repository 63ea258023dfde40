/** One query through one head, in the six steps of the notes, with the numbers that really occur. */

import { el } from "./dom.js";
import { button, plainTable } from "./controls.js";
import { write } from "./numbers.js";
import { formula, stepCard, unitBar, vectorStrip } from "./vectors.js";
import { t } from "./words.js";

const MOST_HIDDEN = 2; // masked keys are all alike
const MOST_ROWS = 8; // of a long sentence, the heaviest; all of them on demand

/**
 * `told`: {query, keys: [label], x, read (what x is called), q, k: [vector], v: [vector], scores, scaled, allowed, weights, z, divisor, width, total, bias}.
 * A vector is {first, norm}.
 */
export function sixSteps(told) {
  return [
    keysAndValues(told),
    scoresCard(told),
    scaledCard(told),
    softmaxCard(told),
    weightedCard(told),
    sumCard(told),
  ];
}

/** The rows worth showing: all, or the heaviest in the order of the sentence. */
function heaviest(told) {
  const order = told.weights.map((weight, i) => [weight, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]);
  const open = order.filter(([, i]) => told.allowed[i]).slice(0, MOST_ROWS);
  const hidden = order.filter(([, i]) => !told.allowed[i]).slice(0, MOST_HIDDEN);
  return [...open, ...hidden].map(([, i]) => i).sort((a, b) => a - b);
}

/** A table over the keys; a long one begins with the heaviest rows. */
function keyTable(told, caption, head, row) {
  const holder = el(".table-scroll", { tabindex: "0" });
  const few = heaviest(told);
  const show = (numbers) => {
    const rows = numbers.map((i) => [told.keys[i], ...row(i)]);
    holder.replaceChildren(
      plainTable({ caption, head: [t("walk.key"), ...head.map((text) => el("span", {}, ...formula(text)))], rows }),
    );
    if (numbers.length < told.keys.length) {
      const left = told.weights.reduce((sum, weight, i) => (numbers.includes(i) ? sum : sum + weight), 0);
      const all = button(t("walk.all", told.keys.length), () => show(told.keys.map((_, i) => i)));
      holder.append(el("p.note", {}, t("walk.others", told.keys.length - numbers.length, write(left)), " ", all));
    }
  };
  show(few);
  return holder;
}

function keysAndValues(told) {
  const read = told.read || "x";
  const strips = [vectorStrip(read, told.x, { total: told.width }), vectorStrip("q", told.q, { total: told.total })];
  const table = keyTable(told, t("walk.kv"), ["k", "v"], (i) => [
    vectorStrip("", told.k[i], { total: told.total }),
    vectorStrip("", told.v[i], { total: told.total }),
  ]);
  return stepCard(
    {
      number: "1",
      title: t("six.1"),
      formula: told.formulas || `q = ${read} W_Q    k = y W_K    v = y W_V`,
      says: t("six.1.says", told.query),
    },
    ...strips,
    table,
  );
}

function scoresCard(told) {
  const table = keyTable(told, t("six.2"), [told.additive ? "score" : "q · k"], (i) => [write(told.scores[i], 3)]);
  return stepCard(
    {
      narrow: true,
      number: "2",
      title: t("six.2"),
      formula: told.additive ? "s_j = v · tanh(q + k_j)" : "s_j = q · k_j",
      says: t("six.2.says", told.query),
    },
    table,
  );
}

function scaledCard(told) {
  const bias = told.bias ? ` + b` : "";
  const head = [`s_j`, `÷ ${write(told.divisor, 3)}${bias}`];
  const table = keyTable(told, t("six.3"), head, (i) => [write(told.scores[i], 3), write(told.scaled[i], 3)]);
  const says = told.divisor === 1 ? t("six.3.none") : formula(t("six.3.says", told.total, write(told.divisor, 3)));
  return stepCard(
    {
      narrow: true,
      number: "3",
      title: t("six.3"),
      formula: `s_j ÷ √d_k = s_j ÷ ${write(told.divisor, 3)}${bias}`,
      says,
    },
    table,
  );
}

function softmaxCard(told) {
  const hidden = told.allowed.filter((is) => !is).length;
  const says = hidden ? `${t("six.4.masked", hidden)} ${t("six.4.says")}` : t("six.4.says");
  const table = keyTable(told, t("six.4"), ["s_j", "softmax"], (i) => [
    told.allowed[i] ? write(told.scaled[i], 3) : `${write(told.scaled[i], 3)} → −∞`,
    unitBar(told.weights[i]),
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

function weightedCard(told) {
  const table = keyTable(told, t("six.5"), ["a_j", "a_j v_j"], (i) => [
    write(told.weights[i]),
    vectorStrip("", scaledVector(told.v[i], told.weights[i]), { total: told.total }),
  ]);
  return stepCard({ number: "5", title: t("six.5"), formula: "a_j v_j", says: t("six.5.says") }, table);
}

function sumCard(told) {
  return stepCard(
    { number: "6", title: t("six.6"), formula: "z = Σ a_j v_j", says: t("six.6.says", told.query) },
    vectorStrip("z", told.z, { total: told.total, digits: 3 }),
  );
}
