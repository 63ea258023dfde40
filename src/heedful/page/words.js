/** Look up the texts of the page in English or Chinese; {0}, {1} are replaced by values. */

import { WORDS } from "./dictionary.js";

let column = 0;

export function setLanguage(code) {
  column = code === "zh" ? 1 : 0;
}

export function t(key, ...values) {
  const entry = WORDS[key];
  if (!entry) throw new Error(`the page has no words for ${key}`);
  return entry[column].replace(/\{(\d)\}/g, (_, i) => values[Number(i)]);
}
