/** Commands to copy into a terminal. */

/** Quote a text as one word for a POSIX shell. */
export function quoted(text) {
  if (/^[\w@%+:,./][\w@%+=:,./-]*$/.test(text)) return text;
  return `'${text.replaceAll("'", String.raw`'\''`)}'`;
}

/** Return a `heedful look` command; the options are not quoted. */
export function lookCommand(sentence, model, options) {
  const rest = `-m ${quoted(model)} ${options}`;
  const text = quoted(sentence);
  return sentence.startsWith("-") ? `heedful look ${rest} -- ${text}` : `heedful look ${text} ${rest}`; // no option
}
