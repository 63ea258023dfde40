/** The page: its views, language and theme; opened from disk or from a server. */

import { attentionView, chosenHeads, chosenKind, chosenLayer } from "./attention.js";
import { getLanguages, getSettings, postLook } from "./api.js";
import { beamView } from "./beam.js";
import { setDark } from "./colour.js";
import { button } from "./controls.js";
import { el, marked } from "./dom.js";
import { englishPair, examplesView } from "./examples.js";
import { layersView } from "./layers.js";
import { outputView } from "./output.js";
import { positionsView } from "./positions.js";
import { change, onChange, recall, remember, startState, state } from "./state.js";
import { layersOf, readTrace } from "./trace.js";
import { alternativesWithin, keyed, translateView } from "./translate.js";
import { chosenSide, walkView } from "./walk.js";
import { setLanguage, t } from "./words.js";

const VIEWS = {
  attention: attentionView,
  walk: walkView,
  output: outputView,
  beam: beamView,
  positions: positionsView,
  layers: layersView,
  examples: examplesView,
};
// The parts of a trace that a view needs; models with one stack lack some.
const NEEDS = {
  walk: ({ walk }) => walk,
  output: ({ steps, answer }) => steps || answer.length,
  beam: ({ beam }) => beam,
  layers: ({ lens }) => lens,
};
const PLAIN = { prefix: "", reference: "", without: "", hidden: "" }; // no changes: the model's own translation
const REMADE_BY = ["view", "page", "lang", "theme"]; // state that needs a new page

const embedded = document.getElementById("heedful-trace").textContent.trim();
const app = document.getElementById("app");
const shown = { trace: null, asked: "", update: () => {}, waiting: null, pieces: null, beside: {} };
const search = { beam: null }; // the beam of this page's translations, if it is not the server's default

function language() {
  if (state.lang) return state.lang;
  return recall("lang") || (navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en");
}

function isDark() {
  const theme = state.theme || recall("theme");
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

/** Set language, theme and title before drawing. */
function dressPage() {
  const lang = language();
  setLanguage(lang);
  setDark(isDark());
  document.documentElement.lang = lang === "zh" ? "zh-Hans" : "en";
  document.documentElement.dataset.theme = isDark() ? "dark" : "light";
  document.title = shown.trace ? `${givenText(shown.trace)} · heedful` : `heedful · ${t("app.tagline")}`;
}

function header() {
  const other = language() === "zh" ? "en" : "zh";
  const light = isDark() ? "light" : "dark";
  const tongue = button(
    t("app.language"),
    () => {
      remember("lang", other);
      change({ lang: other });
    },
    { id: "language", lang: other === "zh" ? "zh-Hans" : "en", "aria-label": t("app.language.label") },
  );
  const theme = button(
    t(`app.theme.${light}`),
    () => {
      remember("theme", light);
      change({ theme: light });
    },
    { id: "theme" },
  );
  const back =
    !embedded && (isLooking() || state.page === "examples")
      ? button(t("page.back"), () => change({ page: "translate" }), { id: "back", class: "quiet" })
      : null;
  return el(
    "header",
    {},
    el("a.skip", { href: "#main", onclick: skip }, t("app.skip")),
    el("p.brand", {}, el("strong", {}, "heedful"), el("span", {}, t("app.tagline"))),
    el(".header-buttons", {}, back, tongue, theme),
  );
}

/** Move the focus to the content. The address after # holds the state of the page, so a plain link cannot do it. */
function skip(event) {
  event.preventDefault();
  document.getElementById("main").focus();
}

function isLooking() {
  return Boolean(embedded) || (state.page === "look" && Boolean(shown.trace || state.q));
}

function givenText({ source, target }) {
  return (source || target).text;
}

function sentence(trace) {
  const text = (words) => el("bdi", { dir: "auto", translate: "no" }, words);
  return el(
    "section.sentence",
    {},
    pieceChoice(embedded ? trace.raw.pieces : shown.pieces),
    el("p.source", {}, text(givenText(trace))),
    trace.source && trace.target ? written(trace, text) : null,
    isOther(trace) ? el("p.note", {}, t("app.other")) : null,
    el("p.note", {}, modelLine(trace.model)),
  );
}

/** The list of segments of a text with several lines; each segment has a look of its own. */
function pieceChoice(pieces) {
  if (!pieces) return null;
  const { sources, targets } = pieces;
  const number = embedded ? pieces.number : state.piece;
  const along = (i) => (targets && state.reference === targets[number] ? { reference: targets[i] } : {});
  const own = (i) => ({ dir: "auto", translate: "no", "aria-current": i === number ? "true" : null });
  return el(
    "nav.pieces",
    { "aria-label": t("pieces.name") },
    el("p.note", {}, t("pieces.says", number + 1, sources.length), embedded ? [" ", ...marked(t("pieces.file"))] : ""),
    el(
      "ol",
      {},
      sources.map((source, i) =>
        el(
          "li",
          {},
          embedded
            ? el("span", own(i), source)
            : button(source, () => look({ piece: i, ...along(i) }), { id: `piece-${i}`, ...own(i) }),
        ),
      ),
    ),
  );
}

function written(trace, text) {
  const { target } = trace;
  const kind = target.kind === "own" ? null : el("span.badge", {}, t(`app.${target.kind}`));
  const isPlain = target.kind === "own" && !trace.raw.changes;
  const again = embedded || isPlain ? null : button(t("app.own"), () => look({}), { class: "quiet" });
  return el("p.target", {}, text(target.text), kind, again);
}

/** Whether the server's translation (in int8, for example) differs from the one of this look. */
function isOther(trace) {
  const { of, text } = shown.beside;
  const isOwn = trace.target?.kind === "own" && !trace.raw.changes;
  return isOwn && Boolean(text) && of === textKey(state) && !text.includes(trace.target.text.trim());
}

function textKey({ q, from, to }) {
  return JSON.stringify([q, from, to]);
}

/** Describe the model: two stacks or one; the layers of a Universal Transformer are steps. */
function modelLine({ name, family, n_encoder_layers: e, n_decoder_layers: d, n_heads, d_model, n_parameters }) {
  const shape = family === "universal" ? "app.steps" : e && d ? "app.layers" : "app.layers.one";
  return t("app.model", `${name} (${family})`, t(shape, e || d, d), n_heads, d_model, n_parameters.toLocaleString("en"));
}

function viewsOf(trace) {
  return Object.keys(VIEWS).filter((name) => !NEEDS[name] || NEEDS[name](trace.raw));
}

function tabs() {
  return el(
    "nav.tabs",
    { "aria-label": t("app.views") },
    viewsOf(shown.trace).map((name) =>
      button(t(`view.${name}`), () => change({ view: name }), {
        id: `view-${name}`,
        "aria-current": chosenView() === name ? "page" : null,
      }),
    ),
  );
}

function chosenView() {
  return viewsOf(shown.trace).includes(state.view) ? state.view : "attention";
}

/** Keyboard shortcuts, while the focus is inside a view and not in a field. */
function shortcuts(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input[type=text], textarea, select"))
    return;
  const { trace } = shown;
  const isWalk = state.view === "walk";
  const kind = isWalk ? chosenSide(trace) : chosenKind(trace);
  const names = viewsOf(trace);
  const layer = chosenLayer(trace, kind, isWalk ? 0 : Infinity);
  const nHeads = trace.model.n_heads;
  const toHead = (by) => {
    const head = ((isWalk ? state.head : chosenHeads(trace)[0]) + by + nHeads) % nHeads;
    change({ heads: String(head), head });
  };
  const acts = {
    "[": () => change({ layer: Math.max(0, layer - 1) }),
    "]": () => change({ layer: Math.min(layersOf(trace, kind) - 1, layer + 1) }),
    ",": () => toHead(-1),
    ".": () => toHead(1),
  };
  names.forEach((name, i) => (acts[String(i + 1)] = () => change({ view: name })));
  if (!acts[event.key]) return;
  event.preventDefault();
  acts[event.key]();
}

/** Return the state as a request for a look. */
function requestOf({ q, from, to, heard, piece, prefix, reference, without, hidden }) {
  const values = { q, source: from === "auto" && heard ? heard : from, target: to };
  if (piece >= 0) values.piece = piece;
  if (prefix) values.prefix = prefix.split(".").map(Number);
  if (reference) values.reference = reference;
  if (hidden) values.masked_words = hidden.split(".").map(Number);
  if (without) {
    values.without_heads = without.split(".").map((one) => {
      const [kind, layer, head] = one.split(":");
      return { kind, layer: Number(layer), head: Number(head) };
    });
  }
  return values;
}

/**
 * Request a trace with the beam of the page's translations: the server's default, or wider if the page requested more
 * alternatives. The first answer contains the server's default; if it is too narrow, request the look again, and later
 * looks with the wider beam.
 */
async function searchedAsTranslated(request, signal) {
  const ask = async (values) => readTrace(await postLook(keyed(values), signal));
  if (search.beam) return ask({ ...request, beam: search.beam });
  const [trace, settings] = await Promise.all([ask(request), getSettings()]);
  const needed = alternativesWithin(settings) + 1;
  if (trace.raw.beam.width >= needed) return trace;
  search.beam = needed;
  return ask({ ...request, beam: needed });
}

/**
 * Request a trace, and return it with the segments of the text. The server segments the text as for a translation and
 * returns the segments; another segment is then requested by its own text, which is a single segment.
 */
async function askLook({ piece, ...values }, signal) {
  const { q, source, target } = values;
  const key = JSON.stringify([q, source, target]);
  const ask = (request) => searchedAsTranslated(request, signal);
  let whole = null;
  let { pieces } = shown;
  if (pieces?.key !== key || piece === undefined) {
    whole = await ask(piece === undefined ? values : { q, source, target });
    pieces = whole.raw.pieces && { key, ...whole.raw.pieces };
  }
  if (!pieces) {
    const isDone = piece === undefined || Object.keys(values).length === 3;
    return { trace: isDone ? whole : await ask(values), pieces, settled: { piece: -1 } };
  }
  const { number, sources, targets } = pieces;
  if (piece === undefined) return { trace: whole, pieces, settled: { piece: number, reference: targets?.[number] || "" } };
  const place = Math.min(piece, sources.length - 1);
  return { trace: await ask({ ...values, q: sources[place] }), pieces, settled: { piece: place } };
}

/** Request another look and show it. */
async function look(patch) {
  if (shown.waiting) shown.waiting.abort();
  const own = new AbortController();
  shown.waiting = own;
  const say = (text) => (document.getElementById("status").textContent = text);
  say(t("app.loading"));
  try {
    const { trace, pieces, settled } = await askLook(requestOf({ ...state, ...PLAIN, ...patch }), own.signal);
    if (shown.waiting !== own) return;
    const next = { ...PLAIN, ...patch, ...settled };
    Object.assign(shown, { trace, pieces, asked: JSON.stringify(requestOf({ ...state, ...next })), waiting: null });
    change({ ...next, page: "look", row: -1, node: -1, step: 0 });
  } catch (error) {
    if (shown.waiting === own) say(t("app.error", error.message));
  }
}

/** Look at an English sentence; return false if no model of this server reads English. */
async function lookAtEnglish(q) {
  const pair = englishPair(await getLanguages(), state.to);
  if (pair) look({ q, ...pair, piece: -1, heard: "", view: "attention", kind: "encoder" });
  return Boolean(pair);
}

/** Return the actions of the views; a file opened from disk has none. */
function lookContext() {
  if (embedded) return { trace: shown.trace };
  return {
    trace: shown.trace,
    force: (ids) => look({ prefix: ids.join(".") }),
    lookAt: lookAtEnglish,
    lookAlong: (reference) => look({ reference }),
    lookWithout: (heads, words) =>
      look({
        without: heads.map((one) => `${one.kind}:${one.layer}:${one.head}`).join("."),
        hidden: words.join("."),
      }),
  };
}

function render() {
  const focused = document.activeElement && document.activeElement.id;
  const wasInside = Boolean(document.activeElement && document.activeElement.closest("main"));
  dressPage();
  const main = el("main", { id: "main", tabindex: "-1" });
  const status = el("p.status", { id: "status", role: "status" });
  if (!embedded && state.page === "examples") {
    app.replaceChildren(header(), status, main);
    const host = el(".view");
    main.append(host);
    shown.update = examplesView(host, { lookAt: lookAtEnglish });
  } else if (!isLooking()) {
    app.replaceChildren(header(), status, main);
    shown.update = () => {};
    translateView(main, {
      look: ({ q, source, target, ...more }, beside = "") => {
        shown.beside = { of: textKey({ q, from: source, to: target }), text: beside };
        look({ q, from: source, to: target, piece: -1, heard: "", ...more });
      },
      showExamples: () => change({ page: "examples" }),
    });
  } else if (shown.trace && (embedded || shown.asked === JSON.stringify(requestOf(state)))) {
    main.addEventListener("keydown", shortcuts);
    app.replaceChildren(header(), sentence(shown.trace), tabs(), status, main, footer());
    const host = el(".view");
    main.append(host);
    shown.update = VIEWS[chosenView()](host, lookContext());
  } else {
    app.replaceChildren(header(), status, main);
    const { prefix, reference, without, hidden } = state;
    look({ prefix, reference, without, hidden });
  }
  const place = (focused && document.getElementById(focused)) || (wasInside && main);
  if (place) place.focus({ preventScroll: true });
}

/** Whether any token of this look contains ▁, the sign for a space. */
function hasSpaces({ source, target }) {
  return [source, target].some((side) => side?.tokens.some((token) => token.includes("▁")));
}

function footer() {
  return el(
    "footer",
    {},
    el("p.note", {}, ...marked(t("app.keys", viewsOf(shown.trace).length), "kbd")),
    hasSpaces(shown.trace) ? el("p.note", {}, t("app.space")) : null,
    embedded ? el("p.note", {}, t("app.file")) : null,
  );
}

function start() {
  startState();
  try {
    if (embedded) shown.trace = readTrace(JSON.parse(embedded));
  } catch (error) {
    dressPage();
    app.replaceChildren(el("p.caution", { role: "alert" }, t("app.error", error.message)));
    return;
  }
  onChange((patch) => {
    const isWhole = !Object.keys(patch).length || REMADE_BY.some((name) => name in patch);
    if (isWhole) render();
    else shown.update();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
  render();
}

start();
