/** Small controls, all of them native elements, so that keyboard and screen readers need no help. */

import { el } from "./dom.js";

let count = 0;

/** One of a few: radio buttons that look like one bar. `options` is [[value, label], …]. */
export function choice(legend, options, current, pick) {
  const name = `choice-${++count}`;
  const inputs = options.map(([value, label]) => {
    const input = el("input", { type: "radio", name, value, onchange: () => pick(value) });
    return [value, input, el("label", {}, input, el("span", {}, label))];
  });
  const set = (value) => {
    for (const [own, input] of inputs) input.checked = String(own) === String(value);
  };
  set(current);
  return {
    element: el(
      "fieldset.choice",
      {},
      el("legend", {}, legend),
      el(
        ".bar",
        {},
        inputs.map((entry) => entry[2]),
      ),
    ),
    set,
  };
}

export function tick(label, current, pick) {
  const input = el("input", { type: "checkbox", onchange: () => pick(input.checked) });
  input.checked = current;
  const set = (value) => {
    input.checked = value;
  };
  return { element: el("label.tick", {}, input, label), set };
}

export function listChoice(label, options, current, pick) {
  const select = el("select", { onchange: () => pick(select.value) });
  const fill = (entries, value) => {
    select.replaceChildren(...entries.map(([own, text]) => el("option", { value: own }, text)));
    select.value = String(value);
  };
  fill(options, current);
  const set = (value) => {
    select.value = String(value);
  };
  return { element: el("label.list", {}, el("span", {}, label), select), set, fill };
}

/** A table that is made when it is opened. `table()` gives {caption, head: [], rows: [[]]}; the first cell of a row names it. */
export function tableView(summary, table) {
  const holder = el(".table-scroll", { tabindex: "0" });
  const details = el("details.table-view", { ontoggle: () => refresh() }, el("summary", {}, summary), holder);
  function refresh() {
    if (details.open) holder.replaceChildren(plainTable(table()));
  }
  return { element: details, refresh };
}

export function plainTable({ caption, head, rows }) {
  const cell = (text) => (text instanceof Node ? text : el("bdi", { dir: "auto" }, text));
  return el(
    "table",
    {},
    el("caption", {}, caption),
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        head.map((text) => el("th", { scope: "col" }, cell(text))),
      ),
    ),
    el(
      "tbody",
      {},
      rows.map(([name, ...rest]) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, cell(name)),
          rest.map((text) => el("td", {}, cell(text))),
        ),
      ),
    ),
  );
}

export function button(label, act, attributes = {}) {
  return el("button", { type: "button", onclick: act, ...attributes }, label);
}
