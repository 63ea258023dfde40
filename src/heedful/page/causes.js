/** The effect of each source word: a matrix of the look that masks one word after the other. */

import { el } from "./dom.js";
import { matrixView } from "./matrix.js";
import { write, writePercent } from "./numbers.js";
import { labelsOf } from "./trace.js";
import { t } from "./words.js";

export function causesPart(trace) {
  const packed = trace.raw.causes && trace.array(trace.raw.causes.hidden);
  if (!packed) return null;
  const { values } = packed;
  const rows = trace.target.tokens;
  const columns = labelsOf(trace, "encoder", true).rows;
  const largest = values.reduce((most, value) => Math.max(most, Math.abs(value)), 0);
  const describe = (r, c) => {
    const { probability } = trace.steps[r];
    const less = values[r * columns.length + c];
    return {
      where: t("causes.where", rows[r], columns[c]),
      value: writePercent(probability * Math.exp(-less)),
      more: [t("causes.with", writePercent(probability)), t("causes.less", write(less, 3))],
    };
  };
  const matrix = matrixView(() => ({
    name: t("causes.title"),
    corner: t("causes.corner"),
    rows,
    columns,
    values,
    describe,
    range: largest || 1,
    unit: t("causes.unit"),
  }));
  matrix.update();
  return el("section.causes", {}, el("h3.title", {}, t("causes.title")), el("p.note", {}, t("causes.says")), matrix.element);
}
