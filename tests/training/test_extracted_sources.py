"""data.long = "extract": training, validation and `heedful summarize` select the same sentences of a long article."""

import random
from pathlib import Path

import numpy as np
import pytest

from echo_engine import EchoEngine
from heedful import train
from heedful.cli import main
from heedful.data import Example, Shards
from heedful.decoding import translator as translators
from heedful.decoding.segmentation import most_important, split_sentences
from heedful.errors import UserError
from heedful.models.model_info import source_language
from heedful.text import load_tokenizers
from heedful.training import read_record
from heedful.training.data_preparation import Extractor, Reduced
from heedful.training.settings import DataSettings
from heedful.training.tasks.translation import reopen
from small_tasks import COMMON

MAX_LEN = 64
TOPICS = {
    "dogs": "the dogs run in the snow and bark at the old man",
    "boats": "two boats sail on the blue lake while children wave",
    "bread": "a baker bakes warm bread and sells it in the street",
}
ASIDE = ("By the way it rained.", "Nobody knows why umbrellas vanish.", "Somebody whistled quite loudly.")


def article(number: int) -> tuple[str, str]:
    """Return an article, sentences about one subject among unrelated ones, and its summary."""
    draw = random.Random(number)
    topic = list(TOPICS)[number % 3]
    words = TOPICS[topic].split()
    sentences = [" ".join(draw.sample(words, 4)).capitalize() + " again." for _ in range(6)]
    for aside in draw.sample(ASIDE, 2):
        sentences.insert(draw.randrange(len(sentences) + 1), aside)
    return " ".join(sentences), f"{topic}."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train a small model for a few steps."""
    place = tmp_path_factory.mktemp("extract")
    articles = [article(number) for number in range(120)] + [("The dogs run.", "dogs.")] * 3
    (place / "pairs.tsv").write_text("".join(f"{text}\t{summary}\n" for text, summary in articles), encoding="utf-8")
    recipe = Path(__file__).parents[2] / "benchmarks" / "recipes" / "extract-summarise.toml"
    overrides = [
        *COMMON, f"data.max_len={MAX_LEN}", "data.batch_tokens=160", "model.n_layers=1", "run.steps=4",
        "run.validate_every=4", "run.save_every=4", "tokenizer.vocab_size=300", "run.ema=0.0",
    ]  # fmt: skip
    notes: list[str] = []
    listeners = [lambda event: notes.append(str(event.get("text")))]
    train(
        folder=place / "run", source=place / "pairs.tsv", recipe=str(recipe), overrides=overrides, listeners=listeners
    )
    (place / "said").write_text("\n".join(notes), encoding="utf-8")
    return place


def is_subsequence(parts: list[str], whole: list[str]) -> bool:
    rest = iter(whole)
    return all(part in rest for part in parts)


def test_extracted_sentences_keep_their_order_and_fit(folder: Path) -> None:
    tokenizer = load_tokenizers(folder / "run" / "tokenizers").source
    extract = Extractor(tokenizer, max_len=MAX_LEN)
    n_without_asides, n_kept = 0, []
    for number in range(120):
        text, _ = article(number)
        sentences = [sentence.strip() for sentence in split_sentences(text, language="en")]
        kept = [sentence.strip() for sentence in split_sentences(extract(text), language="en")]
        assert kept and len(tokenizer.encode(extract(text))) < MAX_LEN < len(tokenizer.encode(text))
        assert is_subsequence(kept, sentences) and len(kept) < len(sentences)
        n_kept.append(len(kept))
        n_without_asides += not any(aside in kept for aside in ASIDE)
    assert sum(n > 2 for n in n_kept) > 60  # enough of them that their order means something
    assert n_without_asides > 80  # what has nothing to do with the rest goes first; chance would leave about 45
    assert extract("The dogs run.") == "The dogs run."
    best = most_important([tokenizer.encode(sentence) for sentence in sentences], room=MAX_LEN - 1)
    assert is_subsequence([sentences[i] for i in best][: len(kept)], sentences)


def test_a_run_trains_on_extracts_and_loses_no_article(folder: Path) -> None:
    tokenizers = load_tokenizers(folder / "run" / "tokenizers")
    extract = Extractor(tokenizers.source, max_len=MAX_LEN)
    shards = Shards.open(folder / "run" / "data" / "train-0")
    wanted = {tuple(tokenizers.source.encode(extract(article(number)[0]))) for number in range(120)}
    wanted.add(tuple(tokenizers.source.encode("The dogs run.")))
    found = [tuple(np.asarray(ids).tolist()) for ids in shards.source.stream.take(np.arange(len(shards)))]
    assert len(found) > 100 and set(found) <= wanted
    assert max(map(len, found)) < MAX_LEN
    assert "long sources were reduced to their most important sentences" in (folder / "said").read_text()


def test_summarize_extracts_as_training_did(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine behind `heedful summarize` gets the sentences that the extractor of training selects."""
    engine = EchoEngine()
    monkeypatch.setattr(translators, "open_engine", lambda path, **_: engine)
    (tmp_path / "articles").write_text("".join(f"{article(number)[0]}\n" for number in range(5)), encoding="utf-8")
    arguments = [str(tmp_path / "articles"), "-m", str(folder / "run"), "--output", str(tmp_path / "out")]
    assert main.run(["summarize", *arguments]) == 0
    assert "5 lines were reduced to the most important sentences" in capsys.readouterr().err
    tokenizer = load_tokenizers(folder / "run" / "tokenizers").source
    extract = Extractor(tokenizer, max_len=MAX_LEN + 1)  # a decoder takes one more than it learned from: the start
    wanted = [tokenizer.encode(extract(article(number)[0])) for number in range(5)]
    assert sorted(list(request.source) for request in engine.asked) == sorted(wanted)


def test_a_trained_model_summarises_a_long_article(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "articles").write_text(f"{article(1)[0]}\n", encoding="utf-8")
    arguments = [str(tmp_path / "articles"), "-m", str(folder / "run"), "--output", str(tmp_path / "out")]
    assert main.run(["summarize", *arguments, "--beam", "1"]) == 0
    assert (tmp_path / "out").read_text(encoding="utf-8").count("\n") == 1
    assert "summarisation model" in (folder / "run" / "last" / "README.md").read_text(encoding="utf-8")


def test_extracted_examples_keep_their_other_fields(folder: Path) -> None:
    tokenizer = load_tokenizers(folder / "run" / "tokenizers").source
    given = [Example("The dogs run.", "dogs."), Example(*article(2))]
    extract = Extractor(tokenizer, max_len=MAX_LEN)
    found = list(Reduced(given, extract))
    assert [one.target for one in found] == [one.target for one in given] and extract.n_reduced == 1
    assert found[0] == given[0] and found[1].source == extract(given[1].source)


def german(number: int) -> tuple[str, str]:
    """Return German sentences with dates, which English rules would split after the day."""
    draw = random.Random(number)
    things = ["Hund", "Haus", "Boot", "Brot", "Mann", "Kind", "Baum", "Berg"]
    sentences = [f"Am {i + 1}. Mai kam ein {draw.choice(things)} zum {draw.choice(things)}." for i in range(9)]
    return " ".join(sentences), f"{things[number % 8]}."


@pytest.mark.parametrize("setting", ["", 'data.languages=["de","de-AT"]'])
def test_training_splits_sentences_as_the_card_will_say(setting: str, tmp_path: Path) -> None:
    """Training, validation and later use split sentences by the language of the file names."""
    name = "pairs.tsv" if setting else "pairs.de-en.tsv"
    lines = [german(number) for number in range(60)]
    (tmp_path / name).write_text("".join(f"{text}\t{summary}\n" for text, summary in lines), encoding="utf-8")
    recipe = Path(__file__).parents[2] / "benchmarks" / "recipes" / "extract-summarise.toml"
    few = ["data.max_len=80", "data.batch_tokens=160", "run.steps=1", "run.ema=0.0", "tokenizer.vocab_size=300"]
    overrides = [*COMMON, *few, "model.n_layers=1", "data.max_doubtful=1.0", *([setting] if setting else [])]
    train(folder=tmp_path / "run", source=tmp_path / name, recipe=str(recipe), overrides=overrides)
    assert source_language(tmp_path / "run" / "last") == "de"
    tokenizer = load_tokenizers(tmp_path / "run" / "tokenizers").source
    chosen = {
        language: {tuple(tokenizer.encode(extract(text))) for text, _ in lines}
        for language in ("de", "en")
        for extract in [Extractor(tokenizer, max_len=80, language=language)]
    }
    shards = Shards.open(tmp_path / "run" / "data" / "train-0")
    found = {tuple(np.asarray(ids).tolist()) for ids in shards.source.stream.take(np.arange(len(shards)))}
    assert found <= chosen["de"] and not found <= chosen["en"]
    assert reopen(tmp_path / "run", read_record(tmp_path / "run").settings).language == "de"


def test_a_checkpoint_without_room_is_an_error() -> None:
    with pytest.raises(UserError, match="room for a sentence"):
        DataSettings(long="extract", max_len=4)
