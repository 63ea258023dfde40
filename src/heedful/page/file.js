/**
 * Translate a text file line by line, in parts within the server's limits. If it stops, the finished lines can be saved,
 * and the work can continue.
 */

import { postTranslate, within } from "./api.js";
import { el } from "./dom.js";
import { button } from "./controls.js";
import { t } from "./words.js";

const LINES_AT_ONCE = 32;
const CHARACTERS_AT_ONCE = 8_000; // an eighth of a server's queue, so that other clients are served as well
const LARGEST_FILE = 5_000_000; // bytes
const TRIES = 6; // of one part
const USUAL_WAIT = 5; // s, if an error response does not name the time
const LONGEST_WAIT = 300; // s
const LF = 10;
const CR = 13;

// One file at a time; the work continues while the page is drawn again in another language or view.
const work = { job: null, draw: () => {} };

/** Return the limits of a part: ours and the server's. */
export function limitsOf({ textsLimit, charLimit }) {
  return {
    lines: Math.max(1, within(LINES_AT_ONCE, textsLimit)),
    characters: CHARACTERS_AT_ONCE,
    line: charLimit > 0 ? charLimit : Infinity,
  };
}

/** Split a text into lines with their ends: LF, CR LF or CR. Other separators are part of a line. */
export function linesOf(text) {
  const parts = text.split(/(\r\n|\n|\r)/);
  const lines = [];
  for (let i = 0; i < parts.length; i += 2) lines.push({ text: parts[i], end: parts[i + 1] || "" });
  if (!lines[lines.length - 1].text) lines.pop();
  return lines;
}

/** Return the text of a file, or the number of its first line that is not UTF-8. */
export function textOf(bytes) {
  const decoder = new TextDecoder("utf-8", { fatal: true });
  try {
    const text = decoder.decode(bytes);
    if (!text.includes("\0")) return { text }; // NUL characters: UTF-16 read as UTF-8
  } catch {
    return { badLine: badLine(bytes, (line) => decoder.decode(line)) };
  }
  return { badLine: 1 + bytes.subarray(0, bytes.indexOf(0)).filter((byte) => byte === LF).length };
}

/** Find the first line that cannot be decoded. In UTF-8 the bytes of line ends occur in no other character. */
function badLine(bytes, read) {
  let start = 0;
  for (let number = 1; ; number++) {
    let end = start;
    while (end < bytes.length && bytes[end] !== LF && (bytes[end] !== CR || bytes[end + 1] === LF)) end += 1;
    try {
      read(bytes.subarray(start, end));
    } catch {
      return number;
    }
    if (end === bytes.length) return number;
    start = end + 1;
  }
}

function isFull({ text }) {
  return text.trim() !== "";
}

/** Return the end of the part that begins at a line, limited by lines and characters; empty lines do not count. */
export function partEnd(lines, start, limits) {
  let count = 0;
  let size = 0;
  let end = start;
  for (; end < lines.length; end++) {
    if (!isFull(lines[end])) continue;
    const isMore = count + 1 > limits.lines || size + lines[end].text.length > limits.characters;
    if (count && isMore) break;
    count += 1;
    size += lines[end].text.length;
  }
  return end;
}

/** Count down the seconds of a wait; cancelling ends it at once. */
function pause(job, seconds) {
  return new Promise((done, fail) => {
    const { signal } = job.stop;
    const finish = (act, value) => {
      clearInterval(timer);
      signal.removeEventListener("abort", stopped);
      act(value);
    };
    const stopped = () => finish(fail, signal.reason);
    const timer = setInterval(() => {
      job.wait -= 1;
      if (job.wait <= 0) finish(done);
      else work.draw();
    }, 1000);
    job.wait = seconds;
    signal.addEventListener("abort", stopped);
    work.draw();
  });
}

/** Repeat a request to a busy server after the time that it names, at most TRIES times. */
async function patiently(job, values) {
  for (let tries = 1; ; tries++) {
    try {
      return (await postTranslate(job.keyed(values), job.stop.signal)).translatedText;
    } catch (error) {
      const isBusy = error.status === 429 || error.status === 503;
      const seconds = Math.max(1, error.wait ?? USUAL_WAIT);
      if (!isBusy || tries === TRIES || seconds > LONGEST_WAIT) throw error;
      await pause(job, seconds);
    }
  }
}

/** Translate the lines start … end - 1. If the server rejects a part, halve it, until the rejected line is found. */
async function translatePart(job, start, end) {
  const full = [];
  for (let i = start; i < end; i++) if (isFull(job.lines[i])) full.push(i);
  if (full.length) {
    const { source, target } = job;
    let found;
    try {
      found = await patiently(job, { q: full.map((i) => job.lines[i].text), source, target });
    } catch (error) {
      if (error.status !== 400 || full.length === 1) throw error;
      const middle = full[full.length >> 1];
      await translatePart(job, start, middle);
      await translatePart(job, middle, end);
      return;
    }
    full.forEach((i, place) => (job.out[i] = found[place].replaceAll(/[\r\n]+/g, " ")));
  }
  job.next = end;
  work.draw();
}

async function run(job) {
  job.stop = new AbortController();
  job.phase = "running";
  work.draw();
  try {
    while (job.next < job.lines.length)
      await translatePart(job, job.next, partEnd(job.lines, job.next, job.limits));
    job.phase = "done";
    save(job);
  } catch (error) {
    job.phase = "stopped";
    job.wait = 0;
    job.error = job.stop.signal.aborted ? t("file.cancelled") : error.status ? error.message : t("translate.offline");
  }
  work.draw();
}

/** Return the finished lines with their original ends; empty lines stay empty. */
function save(job) {
  const text = job.lines.slice(0, job.next).map((line, i) => (job.out[i] ?? line.text) + line.end);
  const mark = job.next < job.lines.length ? `${job.target}.part` : job.target;
  const link = el("a", {
    href: URL.createObjectURL(new Blob(text, { type: "text/plain;charset=utf-8" })),
    download: job.name.replace(/(\.txt)?$/i, `.${mark}.txt`),
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}

/** Read the lines of a file; `error` is the reason if it cannot be translated. */
async function readLines(file, limits) {
  if (file.size > LARGEST_FILE) return { lines: [], error: t("file.large", LARGEST_FILE / 1e6) };
  const { text, badLine: number } = textOf(new Uint8Array(await file.arrayBuffer()));
  if (text === undefined) return { lines: [], error: t("file.notUtf8", number) };
  const lines = linesOf(text);
  return { lines, error: refusal(lines, limits) };
}

/** Return a message for a line beyond the server's limit, or "". */
function refusal(lines, limits) {
  const place = lines.findIndex(({ text }) => text.length > limits.line && [...text].length > limits.line);
  return place < 0 ? "" : t("file.longLine", place + 1, [...lines[place].text].length, limits.line);
}

/** Return the number of the line at which the work stopped, after skipping empty lines. */
function stoppedAt(job) {
  let at = job.next;
  while (at < job.lines.length - 1 && !isFull(job.lines[at])) at += 1;
  return at + 1;
}

function wordsOf(job) {
  if (job.phase === "refused") return job.error;
  if (job.phase === "done") return t("file.done", job.lines.length);
  if (job.phase === "stopped") return t("file.stopped", stoppedAt(job), job.error, job.next, job.lines.length);
  const progress = t("file.progress", Math.round((100 * job.next) / Math.max(1, job.lines.length)));
  return job.wait > 0 ? `${progress} · ${t("file.busy")}` : progress;
}

function buttonsOf(job) {
  if (job.phase === "running") return [button(t("file.cancel"), () => job.stop.abort())];
  if (job.phase !== "stopped") return [];
  const partly = job.next ? [button(t("file.save", job.next), () => save(job))] : [];
  return [button(t("file.again"), () => run(job), { class: "primary" }), ...partly];
}

/** `pair()` returns the languages, `keyed(values)` adds the API key. */
export function fileBox({ pair, keyed, settings }) {
  const status = el("span.note", { role: "status" });
  const clock = el("span.note"); // outside of the status, so that screen readers do not read every second
  const buttons = el("span.file-buttons");
  const input = el("input.hidden-input", {
    type: "file",
    accept: ".txt,text/plain",
    "aria-label": t("file.choose"),
    onchange: () => begin(input.files[0]),
  });
  const label = el("label.button", {}, input, t("file.choose"));
  async function begin(file) {
    if (!file) return;
    const limits = limitsOf(settings);
    const { lines, error } = await readLines(file, limits);
    input.value = "";
    work.job = { name: file.name, lines, limits, ...pair(), keyed, out: [], next: 0, wait: 0, phase: "refused", error };
    if (error) work.draw();
    else await run(work.job);
  }
  let drawn = "";
  work.draw = () => {
    const { job } = work;
    const isRunning = job?.phase === "running";
    input.disabled = isRunning;
    label.classList.toggle("disabled", isRunning);
    const words = job ? wordsOf(job) : "";
    if (status.textContent !== words) status.textContent = words;
    clock.textContent = job?.wait > 0 ? t("file.wait", job.wait) : "";
    const next = job ? `${job.phase} ${job.phase === "running" ? "" : job.next}` : "";
    if (next !== drawn) buttons.replaceChildren(...(job ? buttonsOf(job) : [])); // keep a button that is being pressed
    drawn = next;
  };
  work.draw();
  return el("p.file", {}, label, status, clock, buttons);
}
