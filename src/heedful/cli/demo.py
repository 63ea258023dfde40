"""`heedful demo`: the whole way in three minutes, on a corpus that comes with heedful."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NamedTuple

from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.data.corpus import Example
    from heedful.models.model_io import LoadedModel

Pair = Literal["en-fr", "fr-en", "en-zh", "zh-en", "fr-zh", "zh-fr"]
INTERRUPTED = 130
EVERYDAY = ("I don't know where she lives.", "What time does the train leave?", "He could not help laughing.")


def demo(*, pair: Pair = "en-fr", output: Path = Path("demo")) -> int:
    """Train on the built-in corpus, translate unseen sentences, draw what the model looked at.

    The corpus is made by a grammar of English, French and Chinese, so every
    translation can be judged right or wrong. No network, no other files.

    Parameters
    ----------
    pair
        From which language to which.
    output
        The folder for corpus, run and picture; the run goes on in it if it was interrupted.
    """
    from heedful.data.demo import demo_corpus
    from heedful.models.model_io import load_model
    from heedful.training.console import make_view
    from heedful.training.train import train

    started = time.perf_counter()
    source_language, target_language = pair.split("-")
    corpus = demo_corpus(source_language, target_language)
    folder = output / pair
    files = {
        name: write_pairs(folder / name, examples, source_language, target_language)
        for name, examples in (("train", corpus.train), ("valid", corpus.valid))
    }
    run = folder / "run"
    result = train(
        folder=run,
        source=files["train"].source,
        target=files["train"].target,
        valid_source=files["valid"].source,
        valid_target=files["valid"].target,
        recipe="demo",
        overrides=[f'data.languages=["{source_language}", "{target_language}"]'],
        resume=(run / "settings.toml").exists(),
        listeners=[make_view(sys.stderr)],
    )
    if result.interrupted:
        print(f"{result.left_at}; go on with the same command", file=sys.stderr)
        return INTERRUPTED
    loaded = load_model(run / "average")
    print()
    for what, examples in (("held-out sentences", corpus.test), ("words never seen together", corpus.combinations)):
        right = count_right(loaded, examples, source_language, target_language)
        print(f"{what:<26} {right:,} of {len(examples):,} translated exactly right ({right / len(examples):.1%})")
    show_some(loaded, corpus.test[:6], source_language, target_language)
    picture = draw(loaded, corpus.test, folder / "attention.svg")
    print(f"\nwhat it looked at while translating one of them: {picture}")
    print(f"the model: {run / 'average'} ({time.perf_counter() - started:.0f} seconds in all)")
    show_builtin()
    say_what_next(run, min((example.source for example in corpus.test), key=len))
    return 0


def show_builtin() -> None:
    """What the models for everyday sentences make of some: not of this small grammar, and not trained here."""
    from heedful.decoding.translator import Translator
    from heedful.models.model_info import builtin_models

    models = builtin_models()
    print(f"\nand the models that come with heedful ({', '.join(models)}; everyday sentences) say, there and back:")
    # PyTorch is at work here already
    there, back = (Translator.load(models[name], engine="torch") for name in ("en-fr", "fr-en"))
    said = there.translate(list(EVERYDAY))
    for sentence, french, english in zip(EVERYDAY, said, back.translate(said), strict=True):
        print(f"  {sentence}\n    {french}\n    {english}")


def say_what_next(run: Path, sentence: str) -> None:
    commands = {
        "heedful translate --to fr": "everyday sentences, as you type them; --to en: from French",
        f"heedful translate -m {run}": "the same with the model that you have just trained",
        f'heedful look "{sentence}" -m {run} --output look.html': "a page that shows what happens inside",
        f"heedful serve -m {run}": "translate in a browser, and look inside there",
        "heedful check YOUR.en YOUR.de": "is your own corpus fit to train on?",
        "heedful train runs/mine --source YOUR.en --target YOUR.de": "train on it",
        "heedful demo --pair zh-en": "the same from Chinese to English",
    }
    print("\nWhat to type next:")
    for command, what in commands.items():
        print(f"  {command:<63}{what}" if len(command) < 62 else f"  {command}\n{'':<65}{what}")


class Files(NamedTuple):
    source: Path
    target: Path


def write_pairs(stem: Path, examples: "list[Example]", source_language: str, target_language: str) -> Files:
    """Two aligned text files, as a user would have them."""
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{stem.parent}: cannot hold the demo: {error.strerror}. Choose another --output") from None
    files = Files(stem.with_suffix(f".{source_language}"), stem.with_suffix(f".{target_language}"))
    files.source.write_text("".join(f"{example.source}\n" for example in examples), encoding="utf-8")
    files.target.write_text("".join(f"{example.target}\n" for example in examples), encoding="utf-8")
    return files


def count_right(loaded: "LoadedModel", examples: "list[Example]", source_language: str, target_language: str) -> int:
    """How many translations are among those that the grammar derives."""
    from heedful.data.demo import translations

    said = translate(loaded, [example.source for example in examples])
    return sum(
        text in translations(example.source, source_language, target_language)
        for example, text in zip(examples, said, strict=True)
    )


def translate(loaded: "LoadedModel", texts: list[str]) -> list[str]:
    from heedful.decoding.translator import translate_greedily
    from heedful.models.seq2seq import Seq2Seq

    assert loaded.tokenizers is not None
    return translate_greedily(loaded.expect(Seq2Seq), loaded.tokenizers, texts)


def show_some(loaded: "LoadedModel", examples: "list[Example]", source_language: str, target_language: str) -> None:
    from heedful.data.demo import translations

    print("\nsentences that it has never seen:")
    for example, said in zip(examples, translate(loaded, [example.source for example in examples]), strict=True):
        right = said in translations(example.source, source_language, target_language)
        print(f"  {example.source}\n    {said}{'' if right else f'   ✗ expected: {example.target}'}")


def draw(loaded: "LoadedModel", examples: "list[Example]", path: Path) -> Path:
    """The cross-attention for a sentence of middling length, as an SVG file."""
    from heedful.insight.attention_maps import cross_attention
    from heedful.insight.attention_svg import attention_picture
    from heedful.models.seq2seq import Seq2Seq

    assert loaded.tokenizers is not None
    example = sorted(examples, key=lambda example: len(example.source))[len(examples) * 3 // 4]
    attention = cross_attention(loaded.expect(Seq2Seq), loaded.tokenizers, example.source)
    path.write_text(attention_picture(attention), encoding="utf-8")
    return path
