"""Which weights become best/, and which sentences validation translates."""

import itertools
from pathlib import Path

import pytest

from heedful import train
from heedful.data import Example
from heedful.text import SpecialIds, TokenizerConfig, learn_tokenizers
from heedful.training import read_log
from heedful.training.settings import DataSettings
from heedful.training.tasks.translation import PairsValidator
from small_run import OVERRIDES, write_corpus


@pytest.mark.parametrize("ema", ["0.0", "0.9"])
def test_the_last_weights_are_judged_wherever_a_run_ends(ema: str, tmp_path: Path) -> None:
    source, target = write_corpus(tmp_path)
    changes = ["run.steps=9", "run.validate_every=5", "run.metric=loss", "run.validation_sentences=0", "data.workers=0"]
    chosen = [*OVERRIDES, *changes, f"run.ema={ema}", "optimiser.lr=0.01"]
    folder = train(folder=tmp_path / "run", source=source, target=target, overrides=chosen).folder
    scores = {e["step"]: e["score"] for e in read_log(folder / "log.jsonl") if e["event"] == "validation"}
    assert list(scores) == [5, 9]
    assert scores[9] > scores[5]  # what is still learning gets better
    assert "the best on validation, at step 9" in (folder / "best" / "README.md").read_text()


def validator(n_examples: int, sentences: int) -> PairsValidator:
    examples = [Example(f"the dog {number}", f"DOG {number}") for number in range(n_examples)]
    tokenizers = learn_tokenizers(["the dog"], ["DOG"], TokenizerConfig(vocab_size=300))
    sizes = {
        "data": DataSettings(batch_tokens=1000, max_len=200),
        "special_ids": SpecialIds(),
        "notify": str,
        "last_position": None,
    }
    return PairsValidator(examples, tokenizers, n_sentences=sentences, **sizes)  # type: ignore[arg-type]


@pytest.mark.parametrize(("n_examples", "sentences"), [(90, 30), (100, 7), (5, 5), (5, 9), (5, 0)])
def test_translated_sentences_are_evenly_spaced(n_examples: int, sentences: int) -> None:
    """Held-out pairs are in the order of the corpora, so evenly spaced sentences represent each corpus by its share."""
    chosen = [int(example.source.split()[-1]) for example in validator(n_examples, sentences).chosen]
    assert len(set(chosen)) == len(chosen) == min(n_examples, sentences)
    assert chosen == sorted(chosen)
    gaps = [later - earlier for earlier, later in itertools.pairwise([*chosen, n_examples])]
    assert not gaps or max(gaps) - min(gaps) <= 1
