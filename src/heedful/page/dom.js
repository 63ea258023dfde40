/** Create elements without a framework: el("p.note", {title: "…"}, child, "text"). */

const SVG_SPACE = "http://www.w3.org/2000/svg";

/** Set attributes and children. Functions become listeners ({onclick: f}); null, undefined and false are left out. */
function dress(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

export function el(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag || "div");
  if (classes.length) element.className = classes.join(" ");
  return dress(element, attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElementNS(SVG_SPACE, tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  return dress(element, attributes, children);
}

/** A text in any language, with its own direction, which the browser must not translate. */
export function foreign(text, name = "bdi.foreign") {
  return el(name, { dir: "auto", translate: "no" }, ...pieceNodes(text));
}

/** Split a tokenizer's piece into parts; signs for a space, a line break or a tab are pale. */
export function pieceParts(piece) {
  const seen = /^[\n\t]+$/.test(piece) ? piece.replaceAll("\n", "⏎").replaceAll("\t", "⇥") : piece;
  return seen
    .split(/([▁⏎⇥]+)/)
    .filter(Boolean)
    .map((text) => ({ text, isPale: /[▁⏎⇥]/.test(text) }));
}

/** Return the nodes of a text in which `…` is a command or, with name = "kbd", a key. */
export function marked(text, name = "code") {
  return text.split("`").map((part, i) => (i % 2 ? el(name, {}, part) : part));
}

export function pieceNodes(piece) {
  return pieceParts(piece).map(({ text, isPale }) => (isPale ? el("span.space", {}, text) : text));
}

/** Draw a piece on a canvas, from x to the right or, with align = "right", up to x. */
export function paintPiece(context, piece, [x, y], pale, align = "left") {
  const parts = pieceParts(piece);
  const colour = context.fillStyle;
  context.textAlign = "left";
  let at = align === "right" ? x - parts.reduce((sum, part) => sum + context.measureText(part.text).width, 0) : x;
  for (const { text, isPale } of parts) {
    context.fillStyle = isPale ? pale : colour;
    context.fillText(text, at, y);
    at += context.measureText(text).width;
  }
}

/** Size a canvas in CSS pixels so that it is sharp on any screen; return its context in CSS pixels. */
export function sharpen(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const wide = Math.max(1, Math.round(width * ratio));
  const high = Math.max(1, Math.round(height * ratio));
  if (canvas.width !== wide || canvas.height !== high) {
    canvas.width = wide;
    canvas.height = high;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}

/** Limit calls to one per frame. */
export function perFrame(act) {
  let waiting = 0;
  return () => {
    if (!waiting) {
      waiting = requestAnimationFrame(() => {
        waiting = 0;
        act();
      });
    }
  };
}

export function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
