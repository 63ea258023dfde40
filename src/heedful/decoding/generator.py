"""Prompts in, texts that go on from them out.

    generator = Generator.load("runs/book")
    generator.generate("Once upon a time", max_len=50)                     # str -> str; list -> list, order kept
    generator.search(prompts, sampling={"temperature": 0.8}, n_best=3)     # Generation objects
    for text in generator.stream("Once upon a time"): ...                  # piece by piece, as it is written

It holds nothing that changes, so several threads may use one at a time.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast, overload

from heedful.decoding.engines.auto import open_engine, open_tokenizers
from heedful.decoding.engines.base import DecoderOnlyEngine, Engine
from heedful.decoding.input_text import checked, in_blocks
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings, search_settings
from heedful.errors import UserError, warn
from heedful.models.model_info import find_model_folder, require_family
from heedful.text import Tokenizer
from heedful.text.tokenizer import decode_generated, generated_pieces

if TYPE_CHECKING:
    from heedful.models.gpt import Gpt

# What options say nothing of: greedy search, and so many new tokens at most.
DEFAULTS = {"beam": 1, "max_len": 100}
UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # how the first bytes of a character are decoded


@dataclass(frozen=True)
class Generation:
    """One text that goes on from a prompt."""

    prompt: str
    text: str  # what follows the prompt
    score: float  # natural log-probability of what was written, after the prompt
    tokens: tuple[str, ...]
    complete: bool  # it ended by itself, not at the limit of its length


class Generator:
    """A decoder-only model, ready to write; without a tokenizer it knows ids only."""

    def __init__(
        self,
        model: "Gpt | DecoderOnlyEngine",
        tokenizer: Tokenizer | None,
        *,
        batch_rows: int = 64,
        lanes: int | None = None,
    ) -> None:
        """Take a model in torch, or the engine that runs it; `batch_rows` and `lanes` are TorchEngine's."""
        self.engine = model if isinstance(model, Engine) else _torch_engine(model, batch_rows, lanes)
        self._tokenizer = tokenizer

    @classmethod
    def load(
        cls, path: str | Path, *, device: str = "cpu", engine: str = "auto", compute: str = "float32"
    ) -> "Generator":
        """Load the decoder-only model of a run or a model folder; the options are those of `open_engine`."""
        folder = find_model_folder(path)
        require_family(folder, "gpt")
        opened = cast(DecoderOnlyEngine, open_engine(folder, engine=engine, compute=compute, device=device))
        tokenizers = open_tokenizers(folder, opened)
        return cls(opened, None if tokenizers is None else tokenizers.source)

    @property
    def model(self) -> "Gpt":
        """The model in torch."""
        return self.engine.torch_model

    @property
    def tokenizer(self) -> Tokenizer:
        if self._tokenizer is None:
            raise UserError("this model has no tokenizer, so it goes on from ids only, not from text: use search_ids")
        return self._tokenizer

    @overload
    def generate(self, prompts: str, **options: Any) -> str: ...

    @overload
    def generate(self, prompts: Iterable[str], **options: Any) -> list[str]: ...

    def generate(self, prompts: str | Iterable[str], **options: Any) -> str | list[str]:
        """What follows each prompt, in their order; the options are the fields of SearchSettings.

        `max_len` counts new tokens. Without `beam` or `sampling`, it is always the likeliest next token.
        """
        best = [one[0].text for one in self._blocks(prompts, generation_settings(options))]
        return best[0] if isinstance(prompts, str) else best

    @overload
    def search(self, prompts: str, **options: Any) -> list[Generation]: ...

    @overload
    def search(self, prompts: Iterable[str], **options: Any) -> list[list[Generation]]: ...

    def search(self, prompts: str | Iterable[str], **options: Any) -> list[Generation] | list[list[Generation]]:
        """The `n_best` texts for each prompt, best first, with scores and tokens; options as in `generate`."""
        found = list(self._blocks(prompts, generation_settings(options)))
        return found[0] if isinstance(prompts, str) else found

    def search_ids(self, prompts: Sequence[Sequence[int]], **options: Any) -> list[list[Hypothesis]]:
        """The same for ids: each prompt has at least one, and marks where the model expects them."""
        return self._find(prompts, generation_settings(options), range(len(prompts)))

    def stream(self, prompt: str, **options: Any) -> Iterator[str]:
        """What follows the prompt, piece by piece; a beam is written when it is decided."""
        return self.stream_with(prompt, generation_settings(options))

    def stream_with(self, prompt: str, settings: SearchSettings) -> Iterator[str]:
        """What `stream` does, with settings that are made."""
        ids = self._read(prompt)  # what is wrong with it is said now, not when the first piece is asked for
        found = self.engine.stream(Request(ids, continues=True), settings)
        return _texts_of(found, Continuation(self.tokenizer, ids))

    def answer(
        self, prompts: Sequence[str], settings: SearchSettings, *, numbers: Sequence[int] | None = None
    ) -> list[list[Generation]]:
        """All about one block of prompts; `numbers` are their places among all, by default from 0 on."""
        numbers = range(len(prompts)) if numbers is None else numbers
        ids = [self._read(prompt, number=number) for number, prompt in zip(numbers, prompts, strict=True)]
        found = self._find(ids, settings, numbers)
        tokenizer = self.tokenizer
        return [
            [
                Generation(
                    prompt=prompt,
                    text=Continuation(tokenizer, given).whole(one.ids),
                    score=one.score,
                    tokens=tuple(generated_pieces(tokenizer, one.ids)),
                    complete=one.complete,
                )
                for one in best
            ]
            for prompt, given, best in zip(prompts, ids, found, strict=True)
        ]

    def _blocks(self, prompts: str | Iterable[str], settings: SearchSettings) -> Iterator[list[Generation]]:
        start = 0
        for block in in_blocks([prompts] if isinstance(prompts, str) else prompts):
            yield from self.answer(block, settings, numbers=range(start, start + len(block)))
            start += len(block)

    def prompt_ids(self, prompt: str, *, number: int = 0) -> list[int]:
        """The ids of a prompt, and the start mark before them; `number` is its place, for what is wrong with it."""
        ids = self.tokenizer.encode(checked(prompt, number))
        return self.engine.info.special_ids.with_bos(ids)

    def _read(self, prompt: str, *, number: int = 0) -> list[int]:
        """The ids of a prompt that is to be gone on from; a warning if it is longer than the window."""
        ids, window = self.prompt_ids(prompt, number=number), self.engine.info.window
        if len(ids) > window:
            warn(f"a prompt of {len(ids):,} tokens: the model reads {window:,} at once, and so the last of them")
        return ids

    def _find(
        self, prompts: Sequence[Sequence[int]], settings: SearchSettings, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        size = self.engine.info.vocab_size
        for number, ids in enumerate(prompts):
            if not ids or not all(0 <= one < size for one in ids):
                raise UserError(
                    f"prompt {number}: must be ids from 0 to {size - 1}, at least one, found {list(ids)[:9]}"
                )
        requests = [
            Request(ids, continues=True, sample_key=(number, 0)) for number, ids in zip(numbers, prompts, strict=True)
        ]
        return self.engine.search(requests, settings)


class Continuation:
    """The text of ids that come after others. How an id is written may depend on what stands before it."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._before = list(before)
        self._prompt = tokenizer.decode(self._before)
        self._said = ""
        self.ids: list[int] = []

    def whole(self, ids: Sequence[int]) -> str:
        """The text of all that came after."""
        text = decode_generated(self._tokenizer, [*self._before, *ids])
        return text[len(self._prompt) :] if text.startswith(self._prompt) else decode_generated(self._tokenizer, ids)

    def add(self, ids: Sequence[int]) -> str:
        """What further ids add; characters of which only some bytes are there wait for the rest."""
        self.ids += ids
        return self._new(self.whole(self.ids).rstrip(UNFINISHED))

    def finish(self) -> str:
        """What is still to be said, with all ids known."""
        return self._new(self.whole(self.ids))

    def _new(self, text: str) -> str:
        if not text.startswith(self._said):  # an older piece is written differently now: wait for more
            return ""
        new, self._said = text[len(self._said) :], text
        return new


def _texts_of(found: Iterable[list[int]], continuation: Continuation) -> Iterator[str]:
    for new in found:
        if text := continuation.add(new):
            yield text
    if text := continuation.finish():
        yield text


def generation_settings(options: dict[str, Any], *, where: str = "generate") -> SearchSettings:
    """Settings from options by name; an unknown one is refused with the nearest name."""
    settings = search_settings({**DEFAULTS, **options}, where=where)
    if settings.shortlist:
        raise UserError(
            "shortlist = true: a text that goes on from a prompt has none, since a shortlist holds what the words of "
            "another language call for; leave it out"
        )
    return settings


def _torch_engine(model: "Gpt", batch_rows: int, lanes: int | None) -> DecoderOnlyEngine:
    from heedful.decoding.engines.torch_engine import TorchEngine

    return TorchEngine(model, batch_rows=batch_rows, lanes=lanes)
