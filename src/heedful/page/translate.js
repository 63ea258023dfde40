/** The translation page of a server: two panes that translate as you type. */

import { ServerError, getLanguages, getSettings, postTranslate, within } from "./api.js";
import { el } from "./dom.js";
import { button, listChoice } from "./controls.js";
import { fileBox } from "./file.js";
import { change, recall, remember, state } from "./state.js";
import { t } from "./words.js";

const PAUSE = 350; // ms after the last key press
const ALTERNATIVES = 2;

/** Return the number of alternatives to request. */
export function alternativesWithin(settings) {
  return within(ALTERNATIVES, settings.alternativesLimit);
}

/** Return the first of the candidates (address, last choice, server default) that the server offers. */
function firstOf(codes, ...candidates) {
  return candidates.find((code) => code && codes.includes(code)) || codes[0] || "";
}

/** Return the name of a language in the language of the page, if the browser knows it. */
function nameOf(code) {
  try {
    const names = new Intl.DisplayNames([document.documentElement.lang], { type: "language", fallback: "none" });
    return names.of(code);
  } catch {
    return undefined; // not a language code
  }
}

/** Add the API key to a request, if the server requires one. */
export function keyed(values) {
  const key = recall("key");
  return key ? { ...values, api_key: key } : values;
}

/** Cancel a translation when the text changes; its answer is not shown. */
function liveTranslation(show, fail) {
  let timer = 0;
  let running = null;
  return function ask(values, isNow = false) {
    clearTimeout(timer);
    if (running) running.abort();
    running = null;
    if (!values) return;
    timer = setTimeout(
      async () => {
        const own = new AbortController();
        running = own;
        try {
          const found = await postTranslate(keyed(values), own.signal);
          if (running === own) show(found, values);
        } catch (error) {
          if (running === own && error.name !== "AbortError") fail(error);
        }
      },
      isNow ? 0 : PAUSE,
    );
  };
}

/** Copy a text. Pages without https have no clipboard API, so they use the older command on a selection. */
async function copy(output, place) {
  if (navigator.clipboard) await navigator.clipboard.writeText(output.textContent);
  else {
    getSelection().selectAllChildren(output);
    document.execCommand("copy");
  }
  place.textContent = t("translate.copied");
  setTimeout(() => (place.textContent = t("translate.copy")), 1500);
}

/** The field for the API key, shown if the server requires one; the browser stores the key. */
function keyBox(isWanted) {
  if (!isWanted) return null;
  const input = el("input", {
    type: "password",
    autocomplete: "off",
    value: recall("key"),
    oninput: () => remember("key", input.value.trim()),
  });
  return el("label.list", {}, el("span", {}, t("translate.key")), input);
}

function resultPane({ look }) {
  const output = el("output.translation", { dir: "auto", translate: "no", "aria-live": "polite" });
  const others = el("ul.alternatives");
  const status = el("p.note", { role: "status" });
  const copyButton = button(t("translate.copy"), () =>
    copy(output, copyButton).catch((error) => (status.textContent = error.message)),
  );
  let heard = ""; // a segment alone may be detected as another language
  const lookButton = button(t("translate.look"), () => look({ heard }, output.textContent), { class: "primary" });
  function show(found, values) {
    output.classList.remove("old");
    heard = (values.source === "auto" && found.detectedLanguage?.language) || "";
    output.textContent = found.translatedText;
    const list = (found.alternatives || []).filter((text) => text !== found.translatedText);
    others.replaceChildren(
      ...list.map((text) =>
        el(
          "li",
          {},
          el("bdi", { dir: "auto" }, text),
          button(t("translate.look"), () => look({ heard, reference: text }), { class: "quiet" }),
        ),
      ),
    );
    status.textContent =
      values.source === "auto" && found.detectedLanguage
        ? t("translate.detected", found.detectedLanguage.language, Math.round(found.detectedLanguage.confidence))
        : "";
    enable(Boolean(found.translatedText));
  }
  function enable(is) {
    copyButton.disabled = lookButton.disabled = !is;
  }
  /** Mark the result of an earlier text as outdated, and disable Look, which would show another translation. */
  function outdate() {
    output.classList.add("old");
    lookButton.disabled = true;
    for (const one of others.querySelectorAll("button")) one.disabled = true;
  }
  function clear() {
    output.textContent = "";
    others.replaceChildren();
    status.textContent = "";
    enable(false);
  }
  clear();
  return {
    element: el(".pane", {}, output, el(".pane-foot", {}, copyButton, lookButton, status), others),
    show,
    outdate,
    clear,
    status,
    output,
  };
}

/** `look(values, beside)` opens the views on the text in the left pane; `beside` is the translation in the right pane. */
export async function translateView(host, { look, showExamples }) {
  let languages;
  let settings;
  try {
    [languages, settings] = await Promise.all([getLanguages(), getSettings()]);
  } catch (error) {
    host.append(el("p.caution", {}, error.message));
    return;
  }
  const codes = languages.map((language) => language.code);
  const name = (code) => nameOf(code) || (languages.find((language) => language.code === code) || { name: code }).name;
  const defaults = settings.language || {};
  const pair = () => ({ source: state.from, target: state.to });
  const targetsOf = (code) =>
    code === "auto"
      ? [...new Set(languages.flatMap((language) => language.targets))]
      : languages.find((language) => language.code === code)?.targets || [];
  const sensible = (code) => targetsOf(code).filter((target) => target !== code);
  state.from = firstOf([...codes, "auto"], state.from, recall("from"), defaults.source?.code);
  state.to = firstOf(sensible(state.from), state.to, recall("to"), defaults.target?.code);

  const result = resultPane({ look: (more, beside) => look({ q: area.value.trim(), ...pair(), ...more }, beside) });
  const ask = liveTranslation(result.show, (error) => {
    result.status.textContent = error instanceof ServerError ? error.message : t("translate.offline");
  });
  const counter = el("span.note");
  const area = el("textarea", {
    dir: "auto",
    rows: 7,
    "aria-label": t("translate.text"),
    placeholder: t("translate.placeholder"),
    oninput: () => typed(),
    onkeydown: (event) => {
      if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) typed(true);
    },
  });
  area.value = state.q;
  if (settings.charLimit > 0) area.maxLength = settings.charLimit;
  const from = listChoice(
    t("translate.from"),
    [["auto", t("translate.auto")], ...codes.map((code) => [code, name(code)])],
    state.from,
    (value) => choose({ from: value }),
  );
  const to = listChoice(
    t("translate.to"),
    sensible(state.from).map((code) => [code, name(code)]),
    state.to,
    (value) => choose({ to: value }),
  );
  const swap = button("⇄", () => choose({ from: state.to, to: state.from, text: result.output.textContent }), {
    "aria-label": t("translate.swap"),
    title: t("translate.swap"),
    class: "swap",
  });

  function choose({ from: source = state.from, to: target = state.to, text }) {
    const isKnown = codes.includes(source) || source === "auto";
    const next = isKnown ? source : state.from;
    change({ from: next, to: firstOf(sensible(next), target, state.to) });
    remember("from", state.from);
    remember("to", state.to);
    from.set(state.from);
    to.fill(
      sensible(state.from).map((code) => [code, name(code)]),
      state.to,
    );
    swap.disabled = state.from === "auto" || !codes.includes(state.to);
    if (text) area.value = text;
    typed(true);
  }
  function typed(isNow = false) {
    const q = area.value;
    counter.textContent = settings.charLimit > 0 ? `${q.length} / ${settings.charLimit}` : String(q.length);
    change({ q });
    result.outdate();
    if (q.trim()) ask({ q, ...pair(), alternatives: alternativesWithin(settings) }, isNow);
    else {
      ask(null);
      result.clear();
    }
  }
  const box = keyBox(settings.keyRequired);
  host.append(
    el(".pair", {}, from.element, swap, to.element, box || ""),
    el(
      ".panes",
      {},
      el(
        ".pane",
        {},
        area,
        el(
          ".pane-foot",
          {},
          button(t("translate.clear"), () => {
            area.value = "";
            typed(true);
            area.focus();
          }),
          counter,
        ),
      ),
      result.element,
    ),
    fileBox({ pair, keyed, settings }),
    el("p.note", {}, t("translate.says")),
    el("p.note.offer", {}, t("examples.says"), " ", button(t("examples.show"), showExamples, { id: "examples" })),
  );
  swap.disabled = state.from === "auto" || !codes.includes(state.to);
  if (area.value.trim()) typed(true);
  else area.focus({ preventScroll: true });
}
