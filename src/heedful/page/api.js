/** Requests to the server. A file opened from disk sends none. */

/** An error response: its message, its status, and the seconds to wait, if the server names them. */
export class ServerError extends Error {
  constructor(words, status, wait) {
    super(wait === undefined ? words : `${words} (${wait} s)`);
    this.status = status;
    this.wait = wait;
  }
}

/** Return the seconds of a Retry-After header, which holds seconds or a date. */
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

/** Limit a number to the server's limit, if the server names one. */
export function within(number, limit) {
  return Number.isInteger(limit) ? Math.min(number, limit) : number;
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
