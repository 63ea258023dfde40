/** View 4: the beam search as a tree of all candidates, and why each was kept or pruned. */

import { el, foreign, marked, pieceParts, svg } from "./dom.js";
import { button, tableView, tick } from "./controls.js";
import { write } from "./numbers.js";
import { change, state } from "./state.js";
import { readable } from "./trace.js";
import { t } from "./words.js";

const COLUMN = 108;
const ROW = 34;
const LONGEST = 11; // characters of a token in the tree

/**
 * Build the nodes with parents, children and positions, one column for each step. `ids` of a node force its branch; they
 * leave out forced start tokens, which the server adds itself.
 */
export function growTree(beam, withPruned) {
  const best = new Map();
  beam.hypotheses.forEach((hypothesis, i) => hypothesis.nodes.forEach((node) => best.has(node) || best.set(node, i)));
  const root = {
    node: 0,
    parent: null,
    step: 0,
    token: "<s>",
    ids: [],
    pieces: [],
    children: [],
    fate: "kept",
    best: 0,
  };
  const nodes = new Map([[0, root]]);
  for (const event of beam.events) {
    const parent = nodes.get(event.parent);
    if (!parent || (event.fate === "pruned" && !withPruned)) continue;
    const ids = event.step > beam.n_opening ? [...parent.ids, event.id] : [];
    const node = {
      ...event,
      ids,
      pieces: [...parent.pieces, event.token],
      parent,
      children: [],
      best: best.get(event.node),
    };
    parent.children.push(node);
    nodes.set(event.node, node);
  }
  return {
    nodes,
    root,
    height: placeNodes([...nodes.values()]),
    width: Math.max(...[...nodes.values()].map((node) => node.step)) + 1,
  };
}

/** Sort each column by score, best on top, and set the rows of the nodes. Return the length of the longest column. */
function placeNodes(nodes) {
  const columns = Map.groupBy(nodes, (node) => node.step);
  for (const column of columns.values()) {
    column.sort((a, b) => b.score - a.score || a.node - b.node);
    column.forEach((node, row) => (node.y = row));
  }
  return Math.max(...[...columns.values()].map((column) => column.length));
}

/** Explain why a node was kept, pruned or finished. */
export function whyOf(beam, node) {
  if (node.node === 0) return t("beam.start");
  const rivals = beam.events.filter((event) => event.step === node.step);
  const place = rivals.filter((event) => event.score > node.score).length + 1;
  if (node.best !== undefined) return t("beam.why.best", node.best + 1);
  if (node.fate === "finished") return t("beam.why.finished");
  if (node.fate === "pruned") {
    const kept = rivals.filter((event) => event.fate !== "pruned");
    const worst = Math.min(...kept.map((event) => event.score));
    return t("beam.why.pruned", place, rivals.length, write(node.score, 3), write(worst, 3));
  }
  const isContinued = beam.events.some((event) => event.parent === node.node);
  return isContinued ? t("beam.why.children") : t("beam.why.over");
}

function drawTree(tree, pick) {
  const width = tree.width * COLUMN + 20;
  const height = tree.height * ROW + 20;
  const picture = svg("svg", {
    width,
    height,
    viewBox: `0 0 ${width} ${height}`,
    role: "group",
    "aria-label": t("beam.tree"),
  });
  const at = (node) => [10 + node.step * COLUMN, 18 + node.y * ROW];
  const edges = svg("g.edges");
  const marks = svg("g.nodes");
  for (const node of tree.nodes.values()) {
    const [x, y] = at(node);
    const kind = node.best === 0 ? "best" : node.best !== undefined ? "other" : node.fate;
    if (node.parent) {
      const [px, py] = at(node.parent);
      edges.append(
        svg(`path.${kind}`, {
          d: `M${px + COLUMN - 22} ${py} C${px + COLUMN - 8} ${py} ${px + COLUMN - 14} ${y} ${x} ${y}`,
        }),
      );
    }
    const label = node.token.length > LONGEST ? `${node.token.slice(0, LONGEST - 1)}…` : node.token;
    const group = svg(
      `g.node.${kind}`,
      {
        tabindex: "-1",
        role: "button",
        "data-node": node.node,
        "aria-label": `${node.token}, ${t(`beam.fate.${node.fate}`)}, ${t("beam.score")} ${write(node.score ?? 0, 3)}`,
        onclick: () => pick(node),
        onfocus: () => pick(node),
      },
      svg("rect", { x, y: y - 12, width: COLUMN - 22, height: 24, rx: 12 }),
      svg(
        "text",
        { x: x + (COLUMN - 22) / 2, y: y + 4.5, "text-anchor": "middle" },
        pieceParts(label).map(({ text, isPale }) => (isPale ? svg("tspan.space", {}, text) : text)),
      ),
    );
    marks.append(group);
    node.element = group;
  }
  picture.append(edges, marks);
  return picture;
}

/** Return the node in the direction of an arrow key: the parent, the first child, or the next node of the same step. */
function neighbour(tree, node, key) {
  if (key === "ArrowLeft") return node.parent;
  if (key === "ArrowRight") return node.children[0];
  const column = [...tree.nodes.values()].filter((other) => other.step === node.step).sort((a, b) => a.y - b.y);
  const place = column.indexOf(node);
  if (key === "ArrowUp") return column[place - 1];
  if (key === "ArrowDown") return column[place + 1];
  return undefined;
}

function nodeFacts(context, node) {
  const { beam } = context.trace.raw;
  const text = readable(node.pieces.join(""));
  const facts = [
    el("h4", {}, foreign(node.token)),
    el("p.branch", {}, foreign(text, "bdi")),
    el(
      "p",
      {},
      el("strong", {}, node.node ? t(`beam.fate.${node.fate}`) : t("beam.start")),
      " ",
      node.node ? whyOf(beam, node) : "",
    ),
  ];
  if (node.node)
    facts.push(
      el("p.note", {}, `${t("beam.score")} ${write(node.score, 4)} · ${t("beam.normalized")} ${write(node.normalized_score, 4)}`),
    );
  if (node.continuation)
    facts.push(
      el("p", {}, `${t("beam.forced")} `, foreign(node.continuation.text), ` (${write(node.continuation.score, 3)})`),
    );
  if (node.ids.length && context.force && node.token !== "</s>")
    facts.push(button(t("beam.force"), () => context.force(node.ids), { class: "primary" }));
  else if (node.ids.length && !node.continuation && !context.force) facts.push(el("p.note", {}, ...marked(t("beam.standalone"))));
  return facts;
}

export function beamView(host, context) {
  const { trace } = context;
  const { beam } = trace.raw;
  if (!beam || !beam.events.length) {
    host.append(el("p.lead", {}, t("beam.none")));
    return () => {};
  }
  const facts = el(".facts", { role: "status" });
  const scroller = el(".tree-scroll");
  const pruned = tick(t("beam.pruned"), state.pruned, (value) => change({ pruned: value }));
  const list = el(
    "ol.hypotheses",
    {},
    beam.hypotheses.map((one) =>
      el(
        "li",
        {},
        foreign(one.text),
        el("span.note", {}, ` ${t("beam.normalized")} ${write(one.normalized_score, 3)} · ${t("beam.score")} ${write(one.score, 3)}`),
      ),
    ),
  );
  const table = tableView(t("beam.table"), () => ({
    caption: t("beam.table"),
    head: ["#", t("beam.parent"), t("beam.step"), t("output.token"), t("beam.score"), t("beam.normalized"), t("beam.fate")],
    rows: beam.events.map((event) => [
      String(event.node),
      String(event.parent),
      String(event.step),
      event.token,
      write(event.score, 3),
      write(event.normalized_score, 3),
      t(`beam.fate.${event.fate}`),
    ]),
  }));
  host.append(
    el("p.lead", {}, t("beam.lead", beam.width, write(beam.length_penalty, 2))),
    list,
    el(".controls", {}, pruned.element, legend()),
    el(".tree", {}, scroller, facts),
    table.element,
  );
  let tree = null;

  function pick(node) {
    if (node.node !== state.node) change({ node: node.node });
  }
  scroller.addEventListener("keydown", (event) => {
    const node = tree.nodes.get(Number(event.target.dataset.node));
    const next = node && neighbour(tree, node, event.key);
    if (!node || !event.key.startsWith("Arrow")) return;
    event.preventDefault();
    if (next) next.element.focus();
  });

  function update() {
    pruned.set(state.pruned);
    const isNew = !tree || tree.withPruned !== state.pruned;
    if (isNew) {
      tree = growTree(beam, state.pruned);
      tree.withPruned = state.pruned;
      scroller.replaceChildren(drawTree(tree, pick));
    }
    const chosen = tree.nodes.get(state.node) || tree.nodes.get(beam.hypotheses[0]?.nodes[0]) || tree.root;
    for (const node of tree.nodes.values()) {
      node.element.classList.toggle("chosen", node === chosen);
      node.element.setAttribute("tabindex", node === chosen ? "0" : "-1");
    }
    facts.replaceChildren(...nodeFacts(context, chosen));
    if (isNew) scroller.scrollLeft = (chosen.step + 0.5) * COLUMN - scroller.clientWidth / 2;
  }
  update();
  return update;
}

function legend() {
  return el(
    "ul.legend",
    {},
    ["best", "other", "kept", "finished", "pruned"].map((kind) => el(`li.${kind}`, {}, t(`beam.legend.${kind}`))),
  );
}
