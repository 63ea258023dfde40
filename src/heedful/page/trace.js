/** Access to a trace (docs/look.md); packed arrays are unpacked at first use and cached. */

import { unpack } from "./numbers.js";

const VERSION = 4;
const MARK = /^(<\/?[a-z_]+>|<\|[a-z_]+\|>|\[[A-Z]+\])$/; // special tokens, as in word_spans.py: </s>, <|endoftext|>, [CLS]

export function isMark(piece) {
  return MARK.test(piece);
}

/** Remove the tokenizer's signs for spaces: "▁dog" becomes "dog". */
export function readable(piece) {
  return piece.replaceAll(/[▁Ġ]/g, " ").replaceAll("##", "").trim() || piece;
}

export function readTrace(raw) {
  if (raw.format !== "heedful-trace" || raw.version !== VERSION) {
    throw new Error(`this page reads heedful traces of version ${VERSION}, found ${raw.format} ${raw.version}`);
  }
  const kept = new Map();
  const array = (packed) => {
    if (!packed) return null;
    if (!kept.has(packed)) kept.set(packed, unpack(packed));
    return kept.get(packed);
  };
  return { raw, array, merged: new Map(), model: raw.model, source: raw.source, target: raw.target, steps: raw.steps };
}

/** Return the kinds of attention that the model has. */
export function kindsOf(trace) {
  return ["cross", "encoder", "decoder"].filter((kind) => trace.raw.attention[kind]);
}

/** Return the tokens and words of the rows and columns of an attention. */
export function sidesOf(trace, kind) {
  const { source, target } = trace;
  const rows = kind === "encoder" ? [source.tokens, source.words] : [target.tokens, target.words];
  const columns = kind === "decoder" ? [target.inputs, target.input_words] : [source.tokens, source.words];
  return { rows: rows[0], rowWords: rows[1], columns: columns[0], columnWords: columns[1] };
}

export function layersOf(trace, kind) {
  return kind === "encoder" ? trace.model.n_encoder_layers : trace.model.n_decoder_layers;
}

/** Return the matrix of one layer and head of `weights`, `scores` or `mask`; dimensions of 1 are broadcast. */
export function headMatrix(trace, kind, what, layer, head) {
  const packed = trace.array(trace.raw.attention[kind][what]);
  if (!packed) return null;
  const [nLayers, nHeads, nRows, nColumns] = packed.shape;
  const { rows, columns } = sidesOf(trace, kind);
  const start = ((nLayers === 1 ? 0 : layer) * nHeads + (nHeads === 1 ? 0 : head)) * nRows * nColumns;
  const part = packed.values.subarray(start, start + nRows * nColumns);
  if (nRows === rows.length && nColumns === columns.length) return part;
  const whole = new Float32Array(rows.length * columns.length);
  for (let r = 0; r < rows.length; r++) {
    for (let c = 0; c < columns.length; c++) {
      whole[r * columns.length + c] = part[(nRows === 1 ? 0 : r) * nColumns + (nColumns === 1 ? 0 : c)];
    }
  }
  return whole;
}

/** Merge tokens into words: the sum over the keys, the mean over the queries, so that each row still sums to 1. */
function mergeWords(values, nColumns, rowWords, columnWords) {
  const out = new Float32Array(rowWords.length * columnWords.length);
  rowWords.forEach(([firstRow, endRow], i) => {
    columnWords.forEach(([first, end], j) => {
      let sum = 0;
      for (let r = firstRow; r < endRow; r++) for (let c = first; c < end; c++) sum += values[r * nColumns + c];
      out[i * columnWords.length + j] = sum / (endRow - firstRow);
    });
  });
  return out;
}

/** Return the weights of one head, by tokens or merged into words. */
export function headWeights(trace, kind, layer, head, byWords) {
  if (!byWords) return headMatrix(trace, kind, "weights", layer, head);
  const key = `${kind} ${layer} ${head}`;
  if (!trace.merged.has(key)) {
    const sides = sidesOf(trace, kind);
    const weights = headMatrix(trace, kind, "weights", layer, head);
    trace.merged.set(key, mergeWords(weights, sides.columns.length, sides.rowWords, sides.columnWords));
  }
  return trace.merged.get(key);
}

/** Return the labels of rows and columns, by tokens or words; `readings` are the inputs of the queries. */
export function labelsOf(trace, kind, byWords) {
  const { rows, columns, rowWords, columnWords } = sidesOf(trace, kind);
  const readings = kind === "encoder" ? rows : trace.target.inputs;
  if (!byWords) return { rows, columns, readings };
  const join = (pieces, words) => words.map(([first, end]) => readable(pieces.slice(first, end).join("")));
  return { rows: join(rows, rowWords), columns: join(columns, columnWords), readings: join(readings, rowWords) };
}

/** Return the aligned cells (row × columns + column) of cross-attention; the other kinds have none. */
export function alignedCells(trace, kind, byWords) {
  if (kind !== "cross") return new Set();
  const { source, target } = trace;
  const place = (words, piece) => (byWords ? words.findIndex(([first, end]) => first <= piece && piece < end) : piece);
  const n = byWords ? source.words.length : source.tokens.length;
  return new Set(trace.raw.alignment.map(([from, to]) => place(target.words, to) * n + place(source.words, from)));
}

/** Return the mean of several heads of a layer. */
export function meanWeights(trace, kind, layer, heads, byWords) {
  const parts = heads.map((head) => headWeights(trace, kind, layer, head, byWords));
  if (parts.length === 1) return parts[0];
  const mean = new Float32Array(parts[0].length);
  for (const part of parts) for (let i = 0; i < mean.length; i++) mean[i] += part[i];
  for (let i = 0; i < mean.length; i++) mean[i] /= parts.length;
  return mean;
}

/** Return one vector of the walk: its first numbers and its norm. `place` is [token] or [head, token]. */
export function vectorAt(trace, vector, ...place) {
  if (!vector) return null;
  const first = trace.array(vector.first);
  const norm = trace.array(vector.norm);
  const index = norm.shape.length === 2 ? place[0] * norm.shape[1] + place[1] : place[0];
  const n = first.shape[first.shape.length - 1];
  return { first: first.values.subarray(index * n, (index + 1) * n), norm: norm.values[index] };
}
