/** Small controls from native elements, which work with the keyboard and with screen readers. */

import { el } from "./dom.js";

let count = 0;

/** Radio buttons in one bar. `options` is [[value, label], …]. */
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

/** A table that is built when it is opened. `table()` returns {caption, head: [], rows: [[]]}; the first cell of a row is its header. */
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
