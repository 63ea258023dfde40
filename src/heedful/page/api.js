/** The server's answers. Only used when the page is served; a file opened from disk asks nobody. */

/** A refusal: its words, its status, and the seconds to wait, where the server says how many. */
export class ServerError extends Error {
  constructor(words, status, wait) {
    super(wait === undefined ? words : `${words} (${wait} s)`);
    this.status = status;
    this.wait = wait;
  }
}

/** Retry-After: seconds, or a date. */
function waitOf(header) {
  if (!header) return undefined;
  const seconds = /^\d+$/.test(header) ? Number(header) : Math.ceil((Date.parse(header) - Date.now()) / 1000);
  return Number.isNaN(seconds) ? undefined : Math.max(0, seconds);
}

async function answer(response) {
  const body = await response.json().catch(() => null);
  if (response.ok) return body;
  const words = (body && body.error) || `HTTP ${response.status}`;
  throw new ServerError(words, response.status, waitOf(response.headers.get("Retry-After")));
}

/** As many as the page would like, and no more than the server takes; a server may not say how many that are. */
export function within(wish, limit) {
  return Number.isInteger(limit) ? Math.min(wish, limit) : wish;
}

export async function getLanguages() {
  return answer(await fetch("languages"));
}

export async function getSettings() {
  return answer(await fetch("frontend/settings"));
}

async function post(path, values, signal) {
  const response = await fetch(path, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(values),
    signal,
  });
  return answer(response);
}

export function postTranslate(values, signal) {
  return post("translate", { format: "text", ...values }, signal);
}

export function postLook(values, signal) {
  return post("api/v1/look", values, signal);
}
