"""Words and tags in columns; spans of tags; batches with labels."""

from pathlib import Path

import numpy as np
import pytest

from heedful.data import IGNORE_INDEX, Sentence, collate_labels, read_tagged, read_text, spans_of
from heedful.errors import UserError
from heedful.text import SPECIAL_IDS


def sentences(path: Path, text: str, columns: tuple[int, int] = (1, -1)) -> list[Sentence]:
    path.write_text(text, encoding="utf-8")
    return list(read_tagged(read_text(path, keep_empty=True), columns))


def test_conll_columns(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- O O\n\nEU NNP B-NP B-ORG\nrejects VBZ B-VP O\n\n\n# # B-NP O\nlast X Y O"
    assert sentences(tmp_path / "a", text) == [
        Sentence(("EU", "rejects"), ("B-ORG", "O")),
        Sentence(("#", "last"), ("O", "O")),
    ]


def test_conll_u(tmp_path: Path) -> None:
    text = "# text = dámelo\n1-2\tdámelo\t_\t_\n1\tda\tdar\tVERB\n2\tme\tyo\tPRON\n2.1\tx\tx\tX\n\n"
    assert sentences(tmp_path / "a", text, (2, 4)) == [Sentence(("da", "me"), ("VERB", "PRON"))]


@pytest.mark.parametrize("columns", [(2, 1), (-1, -2)])
def test_the_tag_may_be_in_the_first_column(columns: tuple[int, int], tmp_path: Path) -> None:
    """Then the first column has no numbers, and no line is a comment: "#" is a tag of the Penn Treebank."""
    text = "DT\tthe\n#\t#\n1-2\tx\n\n"
    assert sentences(tmp_path / "a", text, columns) == [Sentence(("the", "#", "x"), ("DT", "#", "1-2"))]


def test_the_error_names_a_line_without_a_tag(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"a:2: 1 column \('alone'\), but a word and its tag"):
        sentences(tmp_path / "a", "word O\nalone\n")


@pytest.mark.parametrize(
    ("tags", "spans"),
    [
        ("O B-PER I-PER O", {(1, 3, "PER")}),
        ("B-PER B-PER", {(0, 1, "PER"), (1, 2, "PER")}),
        ("I-LOC I-ORG", {(0, 1, "LOC"), (1, 2, "ORG")}),
        ("B-PER I-LOC I-LOC", {(0, 1, "PER"), (1, 3, "LOC")}),
        ("U-PER B-LOC L-LOC O", {(0, 1, "PER"), (1, 3, "LOC")}),
        ("U-PER U-PER S-PER", {(0, 1, "PER"), (1, 2, "PER"), (2, 3, "PER")}),
        ("VERB NOUN", set()),
        ("", set()),
    ],
)
def test_spans(tags: str, spans: set[tuple[int, int, str]]) -> None:
    assert spans_of(tags.split()) == spans


def test_collated_labels_are_at_the_positions_of_their_ids() -> None:
    texts = [np.array([7, 8, 9]), np.array([5])]
    batch = collate_labels(
        texts, [np.array([1, IGNORE_INDEX, 2]), np.array([0])], np.array([4, 6]), special_ids=SPECIAL_IDS
    )
    assert batch.ids.tolist() == [[2, 7, 8, 9, 3], [2, 5, 3, 0, 0]]
    assert batch.mask.tolist() == [[True] * 5, [True] * 3 + [False] * 2]
    assert batch.labels.tolist() == [
        [IGNORE_INDEX, 1, IGNORE_INDEX, 2, IGNORE_INDEX],
        [IGNORE_INDEX, 0, IGNORE_INDEX, IGNORE_INDEX, IGNORE_INDEX],
    ]
    assert (batch.n_target_tokens, batch.indices.tolist()) == (3, [4, 6])
    whole = collate_labels(texts, np.array([1, 0]), np.array([4, 6]), special_ids=SPECIAL_IDS)
    assert (whole.labels.tolist(), whole.n_target_tokens) == ([1, 0], 2)
