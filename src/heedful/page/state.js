/**
 * The state of the page, kept in the address after #, so that a reload, a bookmark or a link shows the same. Texts that are
 * too long for an address are kept in the browser's history, so a reload finds them, but a link does not.
 */

const DEFAULTS = {
  page: "", // served: translate, look, examples
  view: "attention",
  kind: "cross",
  show: "", // matrix, lines, grid, image; "" = the default of the model
  layer: -1, // -1 = the default of a view
  heads: "all",
  several: false,
  words: false,
  dim: false,
  sort: "order",
  row: -1, // the chosen query
  side: "encoder", // the walk's stack
  token: 0,
  head: 0,
  step: 0,
  node: -1,
  pruned: true,
  layout: "halves",
  lang: "",
  theme: "",
  from: "",
  to: "",
  q: "",
  heard: "", // the detected language if `from` is auto
  piece: -1, // the shown segment of the text; -1: not known yet
  prefix: "", // ids that the translation must begin with, 12.7.9
  reference: "", // a translation to show instead of the model's own
  without: "", // ablated heads, cross:0:1.encoder:2:3
  hidden: "", // masked words, 1.4
};
const TEXTS = ["q", "reference"];
const LONGEST_TEXT = 2000; // characters that may be part of the address

const listeners = new Set();
export const state = { ...DEFAULTS };

function isKeptBeside(name) {
  return TEXTS.includes(name) && state[name].length > LONGEST_TEXT;
}

/** Return the long texts, for the browser's history. */
function besideAddress() {
  const names = TEXTS.filter(isKeptBeside);
  return names.length ? Object.fromEntries(names.map((name) => [name, state[name]])) : null;
}

function parse(hash, beside) {
  const found = new URLSearchParams(hash.replace(/^#/, ""));
  for (const [name, value] of Object.entries(DEFAULTS)) {
    const text = found.get(name) ?? beside?.[name] ?? null;
    if (text === null) state[name] = value;
    else if (typeof value === "number") state[name] = Number.isInteger(Number(text)) ? Number(text) : value;
    else if (typeof value === "boolean") state[name] = text === "1";
    else state[name] = text;
  }
}

function hashOf() {
  const out = new URLSearchParams();
  for (const [name, value] of Object.entries(DEFAULTS)) {
    if (state[name] === value) continue;
    if (isKeptBeside(name)) continue;
    out.set(name, typeof value === "boolean" ? String(Number(state[name])) : state[name]);
  }
  return `#${out}`;
}

/** Read the address at the start and after every change by the reader. */
export function startState() {
  parse(location.hash, history.state);
  window.addEventListener("popstate", () => {
    const before = JSON.stringify(state);
    parse(location.hash, history.state);
    if (JSON.stringify(state) === before) return;
    for (const listener of listeners) listener({});
  });
}

export function change(patch) {
  Object.assign(state, patch);
  // Only a change of page or view adds an entry to the history.
  const isStep = ("page" in patch || "view" in patch) && hashOf() !== location.hash;
  // A notebook's frame (about:srcdoc) has no address that could hold the state.
  if (location.protocol !== "about:") {
    history[isStep ? "pushState" : "replaceState"](besideAddress(), "", hashOf());
  }
  for (const listener of listeners) listener(patch);
}

export function onChange(listener) {
  listeners.add(listener);
}

/** Store a preference; browsers may forbid this for a file opened from disk. */
export function remember(name, value) {
  try {
    localStorage.setItem(`heedful.${name}`, value);
  } catch {
    return; // the preference is not stored
  }
}

export function recall(name) {
  try {
    return localStorage.getItem(`heedful.${name}`) || "";
  } catch {
    return "";
  }
}
