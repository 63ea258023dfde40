"""Two ranks = one rank for tasks other than translation: the same rows in each step, the same weights."""

from pathlib import Path

import pytest

from rank_runs import apart, train
from small_tasks import CASES

# Without dropout, since every rank draws its own; in float64, where only the order of sums differs.
EXACT = ["model.dropout=0.0", "model.attention_dropout=0.0", "run.precision=float64", "run.ema=0.0", "run.steps=6"]
NO_WORKERS = "data.workers=0"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["next_token", "next_token windows", "masked_tokens"])
def test_two_ranks_are_one(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    files = case.files(tmp_path / "files")
    corpus = ["--family", case.family, f"--{case.kind}", str(files[case.kind])]
    settings = [*case.overrides, *EXACT, NO_WORKERS]
    one, two = (train(tmp_path / str(ranks), corpus, *settings, ranks=ranks) for ranks in (1, 2))
    assert apart(one, two) <= 1e-10
