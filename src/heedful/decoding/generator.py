"""Continue prompts with a decoder-only model.

    generator = Generator.load("runs/book")
    generator.generate("Once upon a time", max_len=50)                     # str -> str; list -> list, in order
    generator.search(prompts, sampling={"temperature": 0.8}, n_best=3)     # Generation objects
    for text in generator.stream("Once upon a time"): ...                  # piece by piece, as it is generated

A Generator does not change after it was loaded, so several threads may use it.
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

# The defaults: greedy search, and at most so many new tokens.
DEFAULTS = {"beam": 1, "max_len": 100}
UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what incomplete bytes of a character are decoded to


@dataclass(frozen=True)
class Generation:
    """One continuation of a prompt."""

    prompt: str
    text: str  # what follows the prompt
    score: float  # natural log-probability of the continuation
    tokens: tuple[str, ...]
    complete: bool  # whether the text ended before the length limit


class Generator:
    """A decoder-only model that is ready to continue prompts; without a tokenizer, it takes ids only."""

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
            raise UserError("this model has no tokenizer, so it continues ids only, not text: use search_ids")
        return self._tokenizer

    @overload
    def generate(self, prompts: str, **options: Any) -> str: ...

    @overload
    def generate(self, prompts: Iterable[str], **options: Any) -> list[str]: ...

    def generate(self, prompts: str | Iterable[str], **options: Any) -> str | list[str]:
        """Return the continuation of a prompt, or of each prompt; the options are the fields of SearchSettings.

        `max_len` counts new tokens, 100 by default. Without `beam` or `sampling`, the search is greedy.
        """
        best = [generations[0].text for generations in self._blocks(prompts, generation_settings(options))]
        return best[0] if isinstance(prompts, str) else best

    @overload
    def search(self, prompts: str, **options: Any) -> list[Generation]: ...

    @overload
    def search(self, prompts: Iterable[str], **options: Any) -> list[list[Generation]]: ...

    def search(self, prompts: str | Iterable[str], **options: Any) -> list[Generation] | list[list[Generation]]:
        """Return the `n_best` continuations of a prompt, or of each prompt, best first; options as in `generate`."""
        results = list(self._blocks(prompts, generation_settings(options)))
        return results[0] if isinstance(prompts, str) else results

    def search_ids(self, prompts: Sequence[Sequence[int]], **options: Any) -> list[list[Hypothesis]]:
        """Search for continuations of ids. Each prompt has at least one id, and the model's special ids."""
        return self._find(prompts, generation_settings(options), range(len(prompts)))

    def stream(self, prompt: str, **options: Any) -> Iterator[str]:
        """Yield the continuation of a prompt piece by piece; that of a beam comes in one piece."""
        return self.stream_with(prompt, generation_settings(options))

    def stream_with(self, prompt: str, settings: SearchSettings) -> Iterator[str]:
        """Do the same with SearchSettings."""
        ids = self._read(prompt)  # raise errors now, not when the first piece is requested
        new_ids = self.engine.stream(Request(ids, continues=True), settings)
        return _texts_of(new_ids, Continuation(self.tokenizer, ids))

    def generate_block(
        self, prompts: Sequence[str], settings: SearchSettings, *, numbers: Sequence[int] | None = None
    ) -> list[list[Generation]]:
        """Continue one block of prompts; `numbers` are their indices among all prompts, by default from 0."""
        numbers = range(len(prompts)) if numbers is None else numbers
        ids = [self._read(prompt, number=number) for number, prompt in zip(numbers, prompts, strict=True)]
        results = self._find(ids, settings, numbers)
        tokenizer = self.tokenizer
        return [
            [
                Generation(
                    prompt=prompt,
                    text=Continuation(tokenizer, prompt_ids).whole(hypothesis.ids),
                    score=hypothesis.score,
                    tokens=tuple(generated_pieces(tokenizer, hypothesis.ids)),
                    complete=hypothesis.complete,
                )
                for hypothesis in best
            ]
            for prompt, prompt_ids, best in zip(prompts, ids, results, strict=True)
        ]

    def _blocks(self, prompts: str | Iterable[str], settings: SearchSettings) -> Iterator[list[Generation]]:
        start = 0
        for block in in_blocks([prompts] if isinstance(prompts, str) else prompts):
            yield from self.generate_block(block, settings, numbers=range(start, start + len(block)))
            start += len(block)

    def prompt_ids(self, prompt: str, *, number: int = 0) -> list[int]:
        """Return the ids of a prompt, after the start token if the model has one; `number` is its index, for errors."""
        ids = self.tokenizer.encode(checked(prompt, number))
        return self.engine.info.special_ids.with_bos(ids)

    def _read(self, prompt: str, *, number: int = 0) -> list[int]:
        """Return the ids of a prompt, and warn if it is longer than the model's window."""
        ids, window = self.prompt_ids(prompt, number=number), self.engine.info.window
        if len(ids) > window:
            warn(f"a prompt has {len(ids):,} tokens: the model reads the last {window:,} of them")
        return ids

    def _find(
        self, prompts: Sequence[Sequence[int]], settings: SearchSettings, numbers: Sequence[int]
    ) -> list[list[Hypothesis]]:
        size = self.engine.info.vocab_size
        for number, ids in enumerate(prompts):
            if not ids or not all(0 <= id < size for id in ids):
                raise UserError(
                    f"prompt {number}: must be ids from 0 to {size - 1}, at least one, found {list(ids)[:9]}"
                )
        requests = [
            Request(ids, continues=True, sample_key=(number, 0)) for number, ids in zip(numbers, prompts, strict=True)
        ]
        return self.engine.search(requests, settings)


class Continuation:
    """The text of ids that follow a prompt. How an id is decoded may depend on the ids before it."""

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._before = list(before)
        self._prompt = tokenizer.decode(self._before)
        self._returned = ""
        self.ids: list[int] = []

    def whole(self, ids: Sequence[int]) -> str:
        """Return the text of all ids after the prompt."""
        text = decode_generated(self._tokenizer, [*self._before, *ids])
        return text[len(self._prompt) :] if text.startswith(self._prompt) else decode_generated(self._tokenizer, ids)

    def add(self, ids: Sequence[int]) -> str:
        """Add ids, and return the new text. A character whose bytes are incomplete is returned later."""
        self.ids += ids
        return self._new(self.whole(self.ids).rstrip(UNFINISHED))

    def finish(self) -> str:
        """Return the rest of the text, after all ids were added."""
        return self._new(self.whole(self.ids))

    def _new(self, text: str) -> str:
        if not text.startswith(self._returned):  # earlier text is decoded differently now: wait for more ids
            return ""
        new, self._returned = text[len(self._returned) :], text
        return new


def _texts_of(new_ids: Iterable[list[int]], continuation: Continuation) -> Iterator[str]:
    for new in new_ids:
        if text := continuation.add(new):
            yield text
    if text := continuation.finish():
        yield text


def generation_settings(options: dict[str, Any], *, where: str = "generate") -> SearchSettings:
    """Make settings from options by name; an unknown name is refused with the most similar one."""
    settings = search_settings({**DEFAULTS, **options}, where=where)
    if settings.shortlist:
        raise UserError(
            "shortlist = true: decoder-only models have no shortlist, which holds the target words that fit a source; "
            "leave it out"
        )
    return settings


def _torch_engine(model: "Gpt", batch_rows: int, lanes: int | None) -> DecoderOnlyEngine:
    from heedful.decoding.engines.torch_engine import TorchEngine

    return TorchEngine(model, batch_rows=batch_rows, lanes=lanes)
