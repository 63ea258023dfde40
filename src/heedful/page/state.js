/**
 * What is shown, kept in the address after #, so that a reload, a bookmark or a link shows the same. Texts that are too
 * long for an address are kept beside it, in the browser's history: a reload and the way back find them, a link does not.
 */

const DEFAULTS = {
  page: "", // served: translate, look, examples
  view: "attention",
  kind: "cross",
  show: "", // matrix, lines, grid, image; "" = what suits the model
  layer: -1, // -1 = the one that a view begins with
  heads: "all",
  several: false,
  words: false,
  dim: false,
  sort: "order",
  row: -1, // a query that stays chosen
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
  heard: "", // what the server took the text for, where `from` is auto
  piece: -1, // which piece of the text is looked at; -1: how it is cut is not known yet
  prefix: "", // ids that the translation must begin with, 12.7.9
  reference: "", // a translation to look at in place of the model's own
  without: "", // heads taken out, cross:0:1.encoder:2:3
  hidden: "", // words hidden from the model, 1.4
};
const TEXTS = ["q", "reference"];
const LONGEST_TEXT = 2000; // an address must stay an address

const listeners = new Set();
export const state = { ...DEFAULTS };

function isKeptBeside(name) {
  return TEXTS.includes(name) && state[name].length > LONGEST_TEXT;
}

/** The long texts, for the browser's history. */
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

/** The address as it is, read once at the start and whenever the reader changes it. */
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
  // The browser's way back goes from page to page and view to view; what a reload shows again is no step.
  const isStep = ("page" in patch || "view" in patch) && hashOf() !== location.hash;
  // In a notebook's frame (about:srcdoc) there is no address of one's own to keep it in.
  if (location.protocol !== "about:") {
    history[isStep ? "pushState" : "replaceState"](besideAddress(), "", hashOf());
  }
  for (const listener of listeners) listener(patch);
}

export function onChange(listener) {
  listeners.add(listener);
}

/** A preference that outlives the page; a file opened from disk may not be allowed to keep one. */
export function remember(name, value) {
  try {
    localStorage.setItem(`heedful.${name}`, value);
  } catch {
    return; // then it is asked for again next time
  }
}

export function recall(name) {
  try {
    return localStorage.getItem(`heedful.${name}`) || "";
  } catch {
    return "";
  }
}
