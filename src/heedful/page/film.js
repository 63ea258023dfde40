/** Animation: all encoder positions in parallel, layer by layer; then the decoder, token by token. */

import { colourOf, el, perFrame, sharpen } from "./dom.js";
import { button } from "./controls.js";
import { headWeights, readable } from "./trace.js";
import { t } from "./words.js";

const SECONDS = 1.1; // for one layer
const FAINTEST = 0.03;

/** Return the scenes in order: each encoder layer once, then each decoder step. */
export function scenesOf(trace) {
  const scenes = [{ kind: "words" }];
  for (let layer = 0; layer < trace.model.n_encoder_layers; layer++) scenes.push({ kind: "encoder", layer });
  for (let step = 0; step < trace.target.tokens.length; step++) scenes.push({ kind: "decoder", step });
  return scenes;
}

/** Return the mean over the heads. It is cached, because every frame needs it. */
function meanOf(trace, kept, kind, layer) {
  const key = `${kind} ${layer}`;
  if (!kept.has(key)) {
    const mean = Float32Array.from(headWeights(trace, kind, layer, 0, false));
    for (let head = 1; head < trace.model.n_heads; head++) {
      const one = headWeights(trace, kind, layer, head, false);
      for (let i = 0; i < mean.length; i++) mean[i] += one[i];
    }
    for (let i = 0; i < mean.length; i++) mean[i] /= trace.model.n_heads;
    kept.set(key, mean);
  }
  return kept.get(key);
}

export function filmView(trace) {
  const scenes = scenesOf(trace);
  const canvas = el("canvas", { role: "img", "aria-label": t("film.title") });
  const holder = el(".film", { tabindex: "0" }, canvas);
  const caption = el("p.readout", { role: "status" });
  const slider = el("input", {
    type: "range",
    min: 0,
    max: scenes.length - 1,
    value: 0,
    step: 1,
    "aria-label": t("film.slider"),
    oninput: () => go(Number(slider.value), false),
  });
  const play = button(t("film.play"), () => (film.playing ? stop() : start()), { class: "primary" });
  const film = { scene: 0, since: 0, playing: false, still: true };
  const kept = new Map();
  const isCalm = matchMedia("(prefers-reduced-motion: reduce)");
  const draw = perFrame(() => frame());

  function frame() {
    if (!holder.isConnected) {
      film.playing = false;
      return;
    }
    const now = performance.now();
    let share = film.still || isCalm.matches ? 1 : Math.min(1, (now - film.since) / (1000 * SECONDS));
    if (film.playing && now - film.since >= 1000 * SECONDS) {
      if (film.scene + 1 >= scenes.length) stop();
      else go(film.scene + 1, true);
      share = film.still || isCalm.matches ? 1 : 0;
    }
    paintFilm({ trace, canvas, holder, scenes, scene: film.scene, share, kept });
    if (film.playing || share < 1) draw();
  }
  function go(scene, isMoving) {
    film.scene = scene;
    film.since = performance.now();
    film.still = !isMoving;
    slider.value = String(scene);
    caption.textContent = captionOf(trace, scenes[scene]);
    draw();
  }
  function start() {
    film.playing = true;
    play.textContent = t("film.pause");
    go(film.scene + 1 >= scenes.length ? 0 : film.scene, true);
  }
  function stop() {
    film.playing = false;
    play.textContent = t("film.play");
  }
  const next = (by) => () => {
    stop();
    go(Math.max(0, Math.min(scenes.length - 1, film.scene + by)), by > 0);
  };
  new ResizeObserver(draw).observe(holder);
  go(0, false);
  return el(
    "figure.film-figure",
    {},
    holder,
    caption,
    el(
      ".film-controls",
      {},
      play,
      button("←", next(-1), { "aria-label": t("film.back") }),
      button("→", next(1), { "aria-label": t("film.next") }),
      slider,
    ),
  );
}

function captionOf(trace, scene) {
  if (scene.kind === "words") return t("film.words", trace.source.tokens.length);
  if (scene.kind === "encoder") return t("film.encoder", scene.layer + 1, trace.source.tokens.length);
  return t("film.decoder", scene.step + 1, trace.target.tokens[scene.step], trace.target.inputs[scene.step]);
}

/** Return the positions of the dots: source on the left, target on the right, layers upwards. */
function geometry(trace, holder) {
  const nSource = trace.source.tokens.length;
  const nTarget = trace.target.tokens.length;
  const step = Math.max(26, Math.min(64, (holder.clientWidth - 60) / (nSource + nTarget + 1)));
  const width = Math.max(holder.clientWidth - 2, step * (nSource + nTarget + 1) + 40);
  const nLayers = Math.max(trace.model.n_encoder_layers, trace.model.n_decoder_layers);
  const rise = Math.max(24, Math.min(54, 300 / (nLayers + 1)));
  const height = rise * (nLayers + 1) + 100;
  const floor = height - 78;
  return {
    width,
    height,
    step,
    floor,
    source: (i, layer) => [20 + (i + 0.5) * step, floor - layer * rise],
    target: (i, layer) => [20 + (nSource + 1 + i + 0.5) * step, floor - layer * rise],
  };
}

function paintFilm({ trace, canvas, holder, scenes, scene, share, kept }) {
  const place = geometry(trace, holder);
  const context = sharpen(canvas, place.width, place.height);
  const colours = {
    dot: colourOf("--line-strong"),
    done: colourOf("--accent"),
    ink: colourOf("--ink"),
    faint: colourOf("--faint"),
    font: colourOf("--sans"),
  };
  const now = scenes[scene];
  const encoderDone = scenes.slice(0, scene).filter((one) => one.kind === "encoder").length;
  const nWritten = now.kind === "decoder" ? now.step : -1;
  const { n_encoder_layers: nEncoder, n_decoder_layers: nDecoder } = trace.model;
  trace.source.tokens.forEach((piece, i) => {
    label(context, colours, piece, place.source(i, 0), 1);
    const reached = now.kind === "encoder" ? encoderDone + share : encoderDone;
    for (let layer = 0; layer <= nEncoder; layer++) filmDot(context, colours, place.source(i, layer), layer <= reached);
  });
  if (now.kind === "encoder")
    beams(
      context,
      colours,
      meanOf(trace, kept, "encoder", now.layer),
      trace.source.tokens.length,
      (r, c) => [place.source(c, now.layer), place.source(r, now.layer + 1)],
      share,
    );
  trace.target.inputs.forEach((piece, i) => {
    const isHere = i === nWritten;
    for (let layer = 0; layer <= nDecoder; layer++)
      if (i > nWritten) filmDot(context, colours, place.target(i, layer), false);
    if (i > nWritten) return;
    label(context, colours, piece, place.target(i, 0), 1);
    const reached = isHere ? share * nDecoder : nDecoder;
    for (let layer = 0; layer <= nDecoder; layer++)
      filmDot(context, colours, place.target(i, layer), layer <= reached + 0.001);
    if (isHere) decoderBeams(context, colours, { trace, kept, place, step: i, share });
    if (!isHere || share === 1) label(context, colours, trace.target.tokens[i], place.target(i, nDecoder), -1);
  });
}

/** Draw the attention of this step, layer by layer: to the earlier tokens and to the output of the encoder. */
function decoderBeams(context, colours, { trace, kept, place, step, share }) {
  const nDecoder = trace.model.n_decoder_layers;
  const nSource = trace.source.tokens.length;
  const nTarget = trace.target.tokens.length;
  for (let layer = 0; layer < nDecoder; layer++) {
    const part = Math.max(0, Math.min(1, share * nDecoder - layer));
    if (!part) continue;
    const own = meanOf(trace, kept, "decoder", layer).subarray(step * nTarget, (step + 1) * nTarget);
    const cross = meanOf(trace, kept, "cross", layer).subarray(step * nSource, (step + 1) * nSource);
    const isNow = layer === Math.min(nDecoder - 1, Math.floor(share * nDecoder));
    context.save();
    context.globalAlpha = isNow ? 1 : 0.35;
    beams(
      context,
      colours,
      own,
      nTarget,
      (_, c) => [place.target(c, layer), place.target(step, layer + 1)],
      part,
      isNow ? 1 : 0.35,
    );
    beams(
      context,
      colours,
      cross,
      nSource,
      (_, c) => [place.source(c, trace.model.n_encoder_layers), place.target(step, layer + 1)],
      part,
      isNow ? 1 : 0.35,
    );
    context.restore();
  }
}

function beams(context, colours, weights, nColumns, ends, share, strength = 1) {
  context.strokeStyle = colours.done;
  for (let i = 0; i < weights.length; i++) {
    if (weights[i] < FAINTEST) continue;
    const [[x0, y0], [x1, y1]] = ends(Math.floor(i / nColumns), i % nColumns);
    context.globalAlpha = Math.min(1, 0.08 + weights[i]) * strength;
    context.lineWidth = 0.5 + 3 * weights[i];
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x0 + (x1 - x0) * share, y0 + (y1 - y0) * share);
    context.stroke();
  }
  context.globalAlpha = 1;
}

function filmDot(context, colours, [x, y], isDone) {
  context.beginPath();
  context.arc(x, y, isDone ? 5 : 3, 0, 2 * Math.PI);
  context.fillStyle = isDone ? colours.done : colours.dot;
  context.fill();
}

/** Draw a label below the lowest or above the highest dot, slanted so that neighbours do not overlap. */
function label(context, colours, piece, [x, y], side) {
  context.save();
  context.translate(x + 3, y + 14 * side);
  context.rotate((side * Math.PI) / 4);
  context.fillStyle = side > 0 ? colours.ink : colours.done;
  context.font = `${side > 0 ? "" : "600 "}12px ${colours.font}`;
  context.textBaseline = "middle";
  context.fillText(readable(piece).slice(0, 12), 0, 0);
  context.restore();
}
