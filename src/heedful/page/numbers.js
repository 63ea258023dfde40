/** Numbers: packed arrays, formatting, and the formulas that the page computes itself. */

let halves = null; // all 65,536 float16 values, computed at first use

function halfTable() {
  if (halves) return halves;
  halves = new Float32Array(65536);
  for (let bits = 0; bits < 65536; bits++) {
    const sign = bits & 0x8000 ? -1 : 1;
    const exponent = (bits >> 10) & 0x1f;
    const fraction = bits & 0x3ff;
    let size;
    if (exponent === 0) size = fraction * 2 ** -24;
    else if (exponent === 31) size = fraction ? NaN : Infinity;
    else size = (1 + fraction / 1024) * 2 ** (exponent - 15);
    halves[bits] = sign * size;
  }
  return halves;
}

function bytesOf(base64) {
  if (typeof Uint8Array.fromBase64 === "function") return Uint8Array.fromBase64(base64);
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

const READERS = {
  u8: [1, (view, i) => view.getUint8(i)],
  u16: [2, (view, i) => view.getUint16(i, true) / 65535],
  f16: [2, (view, i) => halfTable()[view.getUint16(i, true)]],
  f32: [4, (view, i) => view.getFloat32(i, true)],
};

/** Unpack a packed array of docs/look.md as {shape, values}. */
export function unpack(packed) {
  if (!READERS[packed.dtype]) throw new Error(`this page does not know numbers of type ${packed.dtype}`);
  const [size, read] = READERS[packed.dtype];
  const bytes = bytesOf(packed.data);
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values = new Float32Array(bytes.length / size);
  for (let i = 0; i < values.length; i++) values[i] = read(view, i * size);
  return { shape: packed.shape, values };
}

/** Format a number: four decimals, a true minus sign, powers of ten for very small or large values. */
export function write(x, digits = 4) {
  if (x === null || x === undefined || Number.isNaN(x)) return "–";
  if (!Number.isFinite(x)) return x > 0 ? "∞" : "−∞";
  const size = Math.abs(x);
  let text;
  if (size !== 0 && (size < 0.5 * 10 ** -digits || size >= 1e6)) text = x.toExponential(2);
  else if (Number.isInteger(x) && size < 1e6) text = String(x);
  else text = x.toFixed(digits);
  return text.replace("-", "−").replace("e+", "e").replace("e-", "e−");
}

export function writePercent(p) {
  if (p >= 0.9995 && p < 1) return "> 99.9 %";
  if (p > 0 && p < 0.0005) return "< 0.1 %";
  return `${(100 * p).toFixed(1)} %`;
}

export function dot(a, b) {
  let sum = 0;
  for (let i = 0; i < a.length; i++) sum += a[i] * b[i];
  return sum;
}

/** Compute sinusoidal positions ("Attention Is All You Need", 3.5), interleaved or in two halves. */
export function positionCode(nPositions, width, layout = "interleaved", base = 10000) {
  const code = new Float32Array(nPositions * width);
  const half = width / 2;
  for (let position = 0; position < nPositions; position++) {
    for (let i = 0; i < half; i++) {
      const angle = position * base ** (-i / half);
      const [a, b] = layout === "halves" ? [i, half + i] : [2 * i, 2 * i + 1];
      code[position * width + a] = Math.sin(angle);
      code[position * width + b] = Math.cos(angle);
    }
  }
  return code;
}

/** Compute all dot products of the rows of a matrix, divided by the largest. */
export function similarities(values, nRows, width) {
  const out = new Float32Array(nRows * nRows);
  const norms = new Float32Array(nRows);
  const row = (i) => values.subarray(i * width, (i + 1) * width);
  for (let i = 0; i < nRows; i++) norms[i] = Math.sqrt(dot(row(i), row(i))) || 1;
  for (let i = 0; i < nRows; i++) {
    for (let j = 0; j < nRows; j++) out[i * nRows + j] = dot(row(i), row(j)) / (norms[i] * norms[j]);
  }
  return out;
}
