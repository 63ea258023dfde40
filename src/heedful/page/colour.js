/** Colours for numbers: one hue in even steps of lightness, for colour-blind readers and greyscale prints. */

const LIGHT = [
  [252, 252, 253],
  [214, 228, 243],
  [158, 196, 226],
  [88, 150, 203],
  [35, 100, 172],
  [10, 50, 112],
];
const DARK = [
  [27, 30, 35],
  [28, 56, 92],
  [36, 88, 148],
  [62, 128, 200],
  [126, 178, 236],
  [222, 238, 255],
];
// Negative numbers are ochre, which differs from blue for every kind of colour blindness.
const LIGHT_BELOW = [
  [252, 252, 253],
  [246, 224, 193],
  [232, 183, 117],
  [204, 134, 52],
  [158, 92, 16],
  [104, 56, 4],
];
const DARK_BELOW = [
  [27, 30, 35],
  [72, 50, 24],
  [120, 78, 26],
  [176, 116, 40],
  [226, 168, 92],
  [255, 226, 184],
];
// Several heads at once: the palette of Okabe and Ito, made for colour-blind readers, adjusted to both themes.
const HEADS_LIGHT = ["#0062a8", "#b85400", "#00805c", "#a8518a", "#8a7400", "#2b90cf", "#444444", "#9c2f2f"];
const HEADS_DARK = ["#6fb7f2", "#f0975a", "#4fc9a2", "#e09cc6", "#e6d34a", "#9fd4f5", "#cccccc", "#f08a8a"];

let isDark = false;
let above = null;
let below = null;

/** Return the relative luminance (WCAG 2). Above 0.19, black text has more contrast than white. */
function light(...parts) {
  const [r, g, b] = parts.map((part) => (part <= 10 ? part / 3295 : ((part / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

/** Interpolate 256 colours, as 0xAABBGGRR for pixels and as CSS, with the colour of text on each. */
function ramp(stops) {
  const pixels = new Uint32Array(256);
  const css = [];
  const ink = [];
  for (let i = 0; i < 256; i++) {
    const place = (i / 255) * (stops.length - 1);
    const k = Math.min(Math.floor(place), stops.length - 2);
    const [r, g, b] = stops[k].map((part, c) => Math.round(part + (stops[k + 1][c] - part) * (place - k)));
    pixels[i] = (255 << 24) | (b << 16) | (g << 8) | r;
    css.push(`rgb(${r} ${g} ${b})`);
    ink.push(light(r, g, b) > 0.19 ? "#101318" : "#ffffff");
  }
  return { pixels, css, ink };
}

export function setDark(dark) {
  isDark = dark;
  above = ramp(dark ? DARK : LIGHT);
  below = ramp(dark ? DARK_BELOW : LIGHT_BELOW);
}

function place(x) {
  return Math.round(255 * Math.min(1, Math.max(0, x)));
}

/** Return the colour of a weight or probability, 0 to 1. */
export function shade(weight) {
  return above.css[place(weight)];
}

/** Return the colour of a signed number: blue above zero, ochre below; `largest` has the full colour. */
export function signedShade(x, largest) {
  return (x >= 0 ? above : below).css[place(Math.abs(x) / (largest || 1))];
}

export function pixel(weight) {
  return above.pixels[place(weight)];
}

export function signedPixel(x, largest) {
  return (x >= 0 ? above : below).pixels[place(Math.abs(x) / (largest || 1))];
}

/** Return black or white, whichever has more contrast on the shade of this number. */
export function inkOn(x, largest = 1) {
  return (x >= 0 ? above : below).ink[place(Math.abs(x) / (largest || 1))];
}

export function headColour(number) {
  const set = isDark ? HEADS_DARK : HEADS_LIGHT;
  return set[number % set.length];
}
