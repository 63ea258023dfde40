/** View 3: the output of each step, with the most probable tokens. */

import { el, foreign } from "./dom.js";
import { inkOn, shade } from "./colour.js";
import { lookCommand } from "./command.js";
import { tableView, tick } from "./controls.js";
import { write, writePercent } from "./numbers.js";
import { change, state } from "./state.js";
import { isMark } from "./trace.js";
import { unitBar } from "./vectors.js";
import { t } from "./words.js";

const SHOWN = 5; // bars of a step; the chosen step shows all

/** The sentence as shaded tokens; a click chooses a step. */
function ribbon(steps, pick) {
  return el(
    "ol.ribbon",
    {},
    steps.map((step, i) => {
      const button = el(
        "button",
        { type: "button", title: writePercent(step.probability), onclick: () => pick(i) },
        foreign(step.token, "bdi"),
        el("small", {}, writePercent(step.probability)),
      );
      button.style.backgroundColor = shade(step.probability * 0.85);
      button.style.color = inkOn(step.probability * 0.85);
      return el("li", {}, button);
    }),
  );
}

function bars(step, n) {
  const rows = step.top.slice(0, n);
  const isIn = rows.some((one) => one.id === step.id);
  const all = isIn
    ? rows
    : [...rows, { token: step.token, id: step.id, probability: step.probability, logit: step.logit, rank: step.rank }];
  return el(
    "ul.bars",
    {},
    all.map((one) => {
      const row = el(
        "li",
        { title: `logit ${write(one.logit, 4)}` },
        el(
          "bdi.foreign",
          { dir: "auto", translate: "no" },
          one.token,
          one.rank === undefined ? null : el("small", {}, ` ${t("output.rank", one.rank + 1)}`),
        ),
        unitBar(one.probability, writePercent(one.probability)),
      );
      if (one.id === step.id) row.classList.add("written");
      if (isMark(one.token)) row.classList.add("mark");
      return row;
    }),
  );
}

function stepArticle(trace, step, i, isOpen) {
  const isForced = i < trace.target.n_forced;
  const article = el(
    "li.step",
    { id: `step-${i}` },
    el(
      "h4",
      {},
      el("span.step-number", {}, String(i + 1)),
      foreign(step.token),
      isForced ? el("span.badge", {}, t("output.forced")) : null,
    ),
    el("p.note", {}, t("output.facts", writePercent(step.probability), write(step.entropy, 2), trace.target.inputs[i])),
    bars(step, isOpen ? step.top.length : SHOWN),
  );
  if (isOpen) article.classList.add("chosen");
  return article;
}

/** The score, perplexity and mean entropy of the whole sentence. */
function summary(steps) {
  const sum = steps.reduce((total, step) => total + Math.log(step.probability || Number.MIN_VALUE), 0);
  const bits = -sum / Math.LN2 / steps.length;
  return t(
    "output.sum",
    write(sum, 3),
    write(2 ** bits, 2),
    write(steps.reduce((a, step) => a + step.entropy, 0) / steps.length, 2),
  );
}

/** A form for another translation; a file opened from disk shows a command instead. */
function referenceForm(trace, lookAlong) {
  const heading = el("h3.title", {}, t("output.try"));
  if (!lookAlong) {
    const command = lookCommand(trace.source.text, trace.model.name, "--target '…' --output reference.html");
    return el("section", {}, heading, el("pre.command", {}, command));
  }
  const input = el("input.wide", {
    type: "text",
    dir: "auto",
    value: trace.target.text,
    "aria-label": t("output.try.label"),
  });
  const run = (event) => {
    event.preventDefault();
    if (input.value.trim()) lookAlong(input.value.trim());
  };
  return el(
    "form.reference",
    { onsubmit: run },
    heading,
    el(".reference-row", {}, input, el("button.primary", {}, t("output.try.run"))),
  );
}

/** The answers of a BERT or ViT: candidates for mask tokens, or labels of a text, an image or each token. */
function answersView(host, trace) {
  const articles = trace.raw.answer.map(({ place, top }) => {
    const title = place === null ? t("answer.labels") : trace.source.tokens[place];
    const number = place === null ? null : el("span.step-number", {}, String(place + 1));
    const rows = top.map((one) =>
      el("li", {}, foreign(one.token), unitBar(one.probability, writePercent(one.probability))),
    );
    return el("li.step", {}, el("h4", {}, number, foreign(title)), el("ul.bars", {}, rows));
  });
  host.append(el("p.lead", {}, t("answer.lead")), el("ol.steps", {}, articles));
  return () => {};
}

export function outputView(host, { trace, lookAlong }) {
  const { steps, target } = trace;
  if (!steps) return answersView(host, trace);
  const pick = (step) => {
    change({ step });
    document.getElementById(`step-${step}`).scrollIntoView({ block: "nearest" });
  };
  const holder = el("ol.steps");
  const unsure = tick(t("output.unsure"), false, () => update());
  const table = tableView(t("output.table"), () => ({
    caption: t("output.table"),
    head: [
      t("output.token"),
      t("output.probability"),
      t("output.entropy"),
      ...steps[0].top.slice(0, SHOWN).map((_, i) => t("output.rank", i + 1)),
    ],
    rows: steps.map((step) => [
      step.token,
      write(step.probability),
      write(step.entropy, 3),
      ...step.top.slice(0, SHOWN).map((one) => `${one.token} ${write(one.probability)}`),
    ]),
  }));
  const kind = el("p.note", {}, t(`output.kind.${target.kind}`), " ", summary(steps));
  const own =
    target.kind === "own" || !trace.source
      ? null
      : el(
          "p",
          {},
          `${t("output.own")} `,
          foreign(trace.raw.translation.text),
          ` (${write(trace.raw.translation.score, 3)})`,
        );
  host.append(
    el("p.lead", {}, t("output.lead")),
    kind,
    own || "",
    ribbon(steps, pick),
    el(".controls", {}, unsure.element),
    holder,
    table.element,
    trace.source ? referenceForm(trace, lookAlong) : "",
  );

  function update() {
    const chosen = Math.max(0, Math.min(state.step, steps.length - 1));
    const isUnsure = unsure.element.querySelector("input").checked;
    const numbers = steps.map((_, i) => i).filter((i) => !isUnsure || steps[i].probability < 0.5 || i === chosen);
    holder.replaceChildren(...numbers.map((i) => stepArticle(trace, steps[i], i, i === chosen)));
  }
  update();
  return update;
}
