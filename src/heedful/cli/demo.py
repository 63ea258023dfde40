"""`heedful demo`: train a small translation model on the built-in corpus and show what it learned, in three minutes."""

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from cyclopts import Parameter

from heedful.cli.options import DATA, OUTPUT
from heedful.errors import UserError

if TYPE_CHECKING:
    from heedful.data.demo import DemoCorpus, DemoExample
    from heedful.models.model_io import LoadedModel

Pair = Literal["en-fr", "fr-en", "en-zh", "zh-en"]
INTERRUPTED = 130
EVERYDAY = ("I don't know where she lives.", "What time does the train leave?", "He could not help laughing.")
LANGUAGES = {"en": "English", "fr": "French", "zh": "Chinese"}


def demo(
    *,
    pair: Annotated[Pair, Parameter(group=DATA)] = "en-fr",
    output: Annotated[Path, Parameter(name=["--output", "-o"], group=OUTPUT)] = Path("demo"),
) -> int:
    """Train a model on a built-in corpus, translate with it, and draw its attention.

    A grammar of English, French and Chinese generated the corpus, so every
    translation can be judged right or wrong. Needs no network and no other
    files.

    Parameters
    ----------
    pair
        Source and target language.
    output
        Folder for the corpus, the run and the picture. If the run in it was interrupted, it is resumed.
    """
    from heedful.data.demo import demo_corpus
    from heedful.models.model_io import load_model
    from heedful.training.console import make_view
    from heedful.training.train import train

    started = time.perf_counter()
    source_language, target_language = pair.split("-")
    corpus = demo_corpus(source_language, target_language)
    folder = output / pair
    train_files = write_pairs(folder / "train", corpus.train, source_language, target_language)
    valid_files = write_pairs(folder / "valid", corpus.valid, source_language, target_language)
    print(introduction(corpus, source_language, target_language), file=sys.stderr)
    run = folder / "run"
    result = train(
        folder=run,
        source=train_files.source,
        target=train_files.target,
        valid_source=valid_files.source,
        valid_target=valid_files.target,
        recipe="demo",
        overrides=[f'data.languages=["{source_language}", "{target_language}"]'],
        resume=(run / "settings.toml").exists(),
        listeners=[make_view(sys.stderr)],
    )
    if result.interrupted:
        print(f"{result.left_at}; to resume, type the same command again", file=sys.stderr)
        return INTERRUPTED
    loaded = load_model(run / "average")
    print()
    for name, examples in (("held-out sentences", corpus.test), ("new combinations", corpus.combinations)):
        n_right = count_right(loaded, examples)
        print(
            f"{name + ':':<20}{n_right:,} of {len(examples):,} translated exactly right ({n_right / len(examples):.1%})"
        )
    print("A new combination has two words that the model has never seen in one sentence.")
    show_translations(loaded, corpus.test[:6])
    picture = draw_attention(loaded, corpus.test, folder / "attention.svg")
    print(f"\nattention of the model while it translates one of them: {picture}")
    print(f"the model: {run / 'average'} ({time.perf_counter() - started:.0f} seconds in all)")
    show_builtin_models()
    show_next_commands(run, min((example.source for example in corpus.test), key=len))
    return 0


def introduction(corpus: "DemoCorpus", source_language: str, target_language: str) -> str:
    """Return a text, to show before the scores, that explains what scores on this corpus mean."""
    return (
        f"The demo trains on {len(corpus.train):,} sentence pairs, {LANGUAGES[source_language]} to"
        f" {LANGUAGES[target_language]}, which a small grammar generated.\n"
        "So BLEU rises above 95: held-out sentences follow the same grammar. On real text it would be far lower.\n"
        "The training loss includes dropout and label smoothing, the validation loss does not and is much lower.\n"
    )


class CorpusFiles(NamedTuple):
    """Two aligned text files."""

    source: Path
    target: Path


def write_pairs(stem: Path, examples: "list[DemoExample]", source_language: str, target_language: str) -> CorpusFiles:
    """Write two aligned text files, as a user would have them."""
    try:
        stem.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(
            f"--output: folder {stem.parent} cannot be made: {error.strerror}. Choose another --output"
        ) from None
    files = CorpusFiles(stem.with_suffix(f".{source_language}"), stem.with_suffix(f".{target_language}"))
    files.source.write_text("".join(f"{example.source}\n" for example in examples), encoding="utf-8")
    files.target.write_text("".join(f"{example.target}\n" for example in examples), encoding="utf-8")
    return files


def count_right(loaded: "LoadedModel", examples: "list[DemoExample]") -> int:
    """Count the translations that are among the accepted ones."""
    translations = translate(loaded, [example.source for example in examples])
    return sum(text in example.accepted for example, text in zip(examples, translations, strict=True))


def translate(loaded: "LoadedModel", texts: list[str]) -> list[str]:
    """Translate greedily."""
    from heedful.decoding.translator import translate_greedily
    from heedful.models.seq2seq import Seq2Seq

    assert loaded.tokenizers is not None
    return translate_greedily(loaded.expect(Seq2Seq), loaded.tokenizers, texts)


def show_translations(loaded: "LoadedModel", examples: "list[DemoExample]") -> None:
    """Print each sentence with its translation and, if that is wrong, with the expected one."""
    print("\nsentences that the model has not seen:")
    translations = translate(loaded, [example.source for example in examples])
    for example, text in zip(examples, translations, strict=True):
        mark = "" if text in example.accepted else f"   ✗ expected: {example.target}"
        print(f"  {example.source}\n    {text}{mark}")


def draw_attention(loaded: "LoadedModel", examples: "list[DemoExample]", path: Path) -> Path:
    """Draw the cross-attention for a rather long sentence as an SVG file."""
    from heedful.insight.attention_maps import cross_attention
    from heedful.insight.attention_svg import attention_picture
    from heedful.models.seq2seq import Seq2Seq

    assert loaded.tokenizers is not None
    example = sorted(examples, key=lambda example: len(example.source))[len(examples) * 3 // 4]
    attention = cross_attention(loaded.expect(Seq2Seq), loaded.tokenizers, example.source)
    path.write_text(attention_picture(attention), encoding="utf-8")
    return path


def show_builtin_models() -> None:
    """Translate everyday sentences to French and back with the built-in models."""
    from heedful.decoding.translator import Translator
    from heedful.models.model_info import builtin_models

    models = builtin_models()
    print("\nThe built-in models were trained on everyday sentences. English to French, and back:")
    # PyTorch is loaded already, so CTranslate2 would only cost time.
    to_french, to_english = (Translator.load(models[name], engine="torch") for name in ("en-fr", "fr-en"))
    french = to_french.translate(list(EVERYDAY))
    for lines in zip(EVERYDAY, french, to_english.translate(french), strict=True):
        print("  {}\n    {}\n    {}".format(*lines))


def show_next_commands(run: Path, sentence: str) -> None:
    """Print commands to try next; `sentence` is an example for `heedful look`."""
    commands = {
        "heedful translate --to fr": "translate what you type to French with a built-in model; --to en: from French",
        f"heedful translate -m {run}": "the same with the model you have just trained",
        f'heedful look "{sentence}" -m {run} --output look.html': "a page that shows what happens inside the model",
        f"heedful serve -m {run}": "translate in a browser, and look inside there",
        "heedful check YOUR.en YOUR.de": "check whether your own corpus is fit to train on",
        "heedful train runs/mine --source YOUR.en --target YOUR.de": "train on it",
        "heedful demo --pair zh-en": "this demo from Chinese to English",
    }
    print("\nWhat to type next:")
    for command, purpose in commands.items():
        print(f"  {command:<63}{purpose}" if len(command) < 62 else f"  {command}\n{'':<65}{purpose}")
