/** Commands to copy into a terminal: what is typed there is what the reader sees here. */

/** One word for a POSIX shell, in which $, ` and \ would else mean something, and even ! or a quotation mark. */
export function quoted(text) {
  if (/^[\w@%+:,./][\w@%+=:,./-]*$/.test(text)) return text;
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** `heedful look` at a sentence; the options are written as they are. */
export function lookCommand(sentence, model, options) {
  const rest = `-m ${quoted(model)} ${options}`;
  const text = quoted(sentence);
  return sentence.startsWith("-") ? `heedful look ${rest} -- ${text}` : `heedful look ${text} ${rest}`; // no option
}
