"""Draw masks and attention patterns as grids: which query may attend to which key."""

import torch
from torch import Tensor

from heedful.nn.masks import causal_mask, document_mask, padding_mask
from heedful.nn.sparse_attention import AttentionPattern, Dilated, Local, Sparse, Strided, Window, pattern_mask
from svg import BLUE, FAINT, INK, ORANGE, SOFT, Picture

N = 24  # positions in a grid of patterns
QUERY = 12  # the query whose row is framed


def masks() -> str:
    real = torch.tensor([[True] * 7 + [False] * 3])
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 2, 2, 2]])
    padded = padding_mask(real)[0, 0].expand(10, -1)
    causal = causal_mask(10)
    grids = [
        ("padding_mask(real)", "the last 3 of 10 tokens", "are padding", padded),
        ("causal_mask(10)", "no query attends", "to a later key", causal),
        ("combine(padding, causal)", "allowed only where", "both allow it", padded & causal),
        ("causal_mask(1, 10)", "one new token", "before a cache of 9", causal_mask(1, 10)),
        ("document_mask(documents)", "three packed documents", "stay apart", document_mask(documents)[0, 0]),
    ]
    picture = Picture(920, 284, "Five masks as grids: queries are rows, keys are columns, blue may attend")
    for i, (name, first, second, mask) in enumerate(grids):
        x, side = 30 + i * 178, 14
        picture.text(x, 34, name, size=10.8, bold=True, mono=True)
        _grid(picture, x, 50 + (10 - len(mask)) * side, side, mask)  # a single query stands in the last row
        picture.text(x, 50 + 10 * side + 22, first, colour=SOFT)
        picture.text(x, 50 + 10 * side + 38, second, colour=SOFT)
    _legend(picture, 30, 264)
    return str(picture)


def patterns() -> str:
    grids: list[tuple[str, str, AttentionPattern]] = [
        ("Local(3)", "neighbours, at most 3 away", Local(3)),
        ("Window(6)", "inside its block of 6", Window(6)),
        ("Strided(4)", "every 4th from the query on", Strided(4)),
        ("Dilated(4)", "0, 1, 2, 4, 8 away", Dilated(4)),
        ("Sparse(4, n_global=1)", "near blocks, one global token", Sparse(4)),
    ]
    drawn = [(name, caption, pattern_mask(rule, N, N)) for name, caption, rule in grids]
    drawn.append(("TopKAttention(5)", "the 5 highest scores: learned", _top_k(5)))
    causal = [
        ("Local(3, causal=True)", "what a decoder uses", pattern_mask(Local(3, causal=True), N, N)),
        ("Dilated(4, causal=True)", "what a decoder uses", pattern_mask(Dilated(4, causal=True), N, N)),
    ]
    picture = Picture(920, 616, "Eight patterns as grids: queries are rows, keys are columns, blue may attend")
    for i, (name, caption, mask) in enumerate([*drawn, *causal]):
        x, y, side = 30 + i % 4 * 222, 50 + i // 4 * 276, 8
        picture.text(x, y - 16, name, bold=True, mono=True)
        _grid(picture, x, y, side, mask, query=QUERY)
        allowed = int(mask.sum())
        picture.text(x, y + N * side + 18, caption, colour=SOFT)
        picture.text(x, y + N * side + 34, f"{allowed} of {N * N} pairs", colour=SOFT)
    _legend(picture, 30, 596, query=True)
    return str(picture)


def _top_k(k: int) -> Tensor:
    # Scores like those of trained heads, which prefer some keys and near keys; not random, so no seed is needed.
    query, key = torch.arange(N)[:, None], torch.arange(N)[None, :]
    scores = 2.0 * torch.sin(1.7 * key + 0.6) + torch.sin(0.9 * query * key + 1.1) - 0.12 * (query - key).abs()
    return torch.zeros(N, N, dtype=torch.bool).scatter(1, scores.topk(k, dim=1).indices, True)


def _grid(picture: Picture, x: float, y: float, side: float, mask: Tensor, query: int | None = None) -> None:
    n_rows, n_columns = mask.shape
    width, height = n_columns * side, n_rows * side
    picture.box(x, y, width, height, fill=FAINT)
    picture.cells(x, y, side, mask.tolist(), colour=BLUE)
    lines = "".join(f"M0 {i * side}h{width}" for i in range(1, n_rows))
    lines += "".join(f"M{j * side} 0v{height}" for j in range(1, n_columns))
    picture.path(lines, stroke="#ffffff", width=1 if side > 10 else 0.7, place=f"translate({x} {y})")
    if query is not None:
        picture.path(f"M{x - 1},{y + query * side - 1}h{width + 2}v{side + 2}h{-width - 2}z", stroke=ORANGE, width=1.8)


def _legend(picture: Picture, x: float, y: float, *, query: bool = False) -> None:
    picture.box(x, y - 10, 11, 11, fill=BLUE)
    picture.text(x + 17, y, "may attend", colour=INK)
    picture.box(x + 96, y - 10, 11, 11, fill=FAINT)
    picture.text(x + 113, y, "masked", colour=INK)
    picture.text(x + 170, y, "a row is a query, a column a key", colour=SOFT)
    if query:
        picture.path(f"M{x + 376},{y - 10}h20v10h-20z", stroke=ORANGE, width=1.8)
        picture.text(x + 403, y, f"row of query {QUERY}", colour=INK)
