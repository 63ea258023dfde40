/** The server's answers. Only used when the page is served; a file opened from disk asks nobody. */

export class ServerError extends Error {}

async function answer(response) {
  const body = await response.json().catch(() => null);
  if (!response.ok) {
    const wait = response.headers.get("Retry-After");
    throw new ServerError(`${(body && body.error) || `HTTP ${response.status}`}${wait ? ` (${wait} s)` : ""}`);
  }
  return body;
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
