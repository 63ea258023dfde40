"""Continue prompts with a decoder-only model.

    generator = Generator.load("runs/book")
    generator.generate("Once upon a time", max_len=50)                     # str -> str; list -> list, order kept
    generator.search(prompts, sampling={"temperature": 0.8}, n_best=3)     # Generation objects
    for text in generator.stream("Once upon a time"): ...                  # piece by piece, while it is generated

A Generator has no state that changes, so several threads may share one.
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

DEFAULTS = {"beam": 1, "max_len": 100}  # greedy search, at most 100 new tokens
UNFINISHED = "\N{REPLACEMENT CHARACTER}"  # what an incomplete byte sequence is decoded to


@dataclass(frozen=True)
class Generation:
    """A prompt and one generated continuation."""

    prompt: str
    text: str  # the continuation, without the prompt
    score: float  # natural log-probability of the generated tokens
    tokens: tuple[str, ...]  # the generated tokens
    complete: bool  # it ended with the end of the text, not at the length limit


class Generator:
    """A decoder-only model that continues prompts. Without a tokenizer, it takes and returns ids only.

    generator = Generator.load("runs/book")
    generator.generate("Once upon a time", max_len=50)
    """

    def __init__(
        self,
        model: "Gpt | DecoderOnlyEngine",
        tokenizer: Tokenizer | None,
        *,
        batch_rows: int = 64,
        lanes: int | None = None,
    ) -> None:
        """Wrap a model in torch, or an engine; `batch_rows` and `lanes` are the arguments of TorchEngine."""
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
        """The tokenizer; a UserError is raised if the model has none."""
        if self._tokenizer is None:
            raise UserError("this model has no tokenizer, so it cannot read text; pass ids to search_ids")
        return self._tokenizer

    @overload
    def generate(self, prompts: str, **options: Any) -> str: ...

    @overload
    def generate(self, prompts: Iterable[str], **options: Any) -> list[str]: ...

    def generate(self, prompts: str | Iterable[str], **options: Any) -> str | list[str]:
        """Return the continuation of each prompt, in the order of the prompts.

        The options are the fields of SearchSettings; `max_len` counts new tokens. Without `beam` or `sampling`, the
        search is greedy.
        """
        texts = [n_best[0].text for n_best in self._search_blocks(prompts, generation_settings(options))]
        return texts[0] if isinstance(prompts, str) else texts

    @overload
    def search(self, prompts: str, **options: Any) -> list[Generation]: ...

    @overload
    def search(self, prompts: Iterable[str], **options: Any) -> list[list[Generation]]: ...

    def search(self, prompts: str | Iterable[str], **options: Any) -> list[Generation] | list[list[Generation]]:
        """Return the `n_best` continuations of each prompt, best first, with scores; the options are `generate`'s."""
        generations = list(self._search_blocks(prompts, generation_settings(options)))
        return generations[0] if isinstance(prompts, str) else generations

    def search_ids(self, prompts: Sequence[Sequence[int]], **options: Any) -> list[list[Hypothesis]]:
        """Search continuations of prompts given as ids.

        Each prompt has at least one id, and contains the special tokens that the model expects, such as BOS.
        """
        return self._search_ids(prompts, generation_settings(options), range(len(prompts)))

    def stream(self, prompt: str, **options: Any) -> Iterator[str]:
        """Yield the continuation piece by piece, as it is generated; the result of a beam comes in one piece."""
        return self.stream_with(prompt, generation_settings(options))

    def stream_with(self, prompt: str, settings: SearchSettings) -> Iterator[str]:
        """Do what `stream` does, with the options as SearchSettings."""
        ids = self._encode(prompt)  # not in the generator function, so that an invalid prompt raises at once
        new_ids = self.engine.stream(Request(ids, continues=True), settings)
        return _decode_stream(new_ids, ContinuationDecoder(self.tokenizer, ids))

    def generate_block(
        self, prompts: Sequence[str], settings: SearchSettings, *, indices: Sequence[int] | None = None
    ) -> list[list[Generation]]:
        """Return the `n_best` continuations of each prompt of one block.

        `indices` are the positions of the prompts in the whole input, by default 0, 1, …; sampling depends on them.
        """
        indices = range(len(prompts)) if indices is None else indices
        prompt_ids = [self._encode(prompt, index=index) for index, prompt in zip(indices, prompts, strict=True)]
        results = self._search_ids(prompt_ids, settings, indices)
        tokenizer = self.tokenizer
        return [
            [
                Generation(
                    prompt=prompt,
                    text=ContinuationDecoder(tokenizer, ids).decode(hypothesis.ids),
                    score=hypothesis.score,
                    tokens=tuple(generated_pieces(tokenizer, hypothesis.ids)),
                    complete=hypothesis.complete,
                )
                for hypothesis in n_best
            ]
            for prompt, ids, n_best in zip(prompts, prompt_ids, results, strict=True)
        ]

    def _search_blocks(self, prompts: str | Iterable[str], settings: SearchSettings) -> Iterator[list[Generation]]:
        start = 0
        for block in in_blocks([prompts] if isinstance(prompts, str) else prompts):
            yield from self.generate_block(block, settings, indices=range(start, start + len(block)))
            start += len(block)

    def prompt_ids(self, prompt: str, *, index: int = 0) -> list[int]:
        """Return the ids of a prompt, after BOS if the model expects it; error messages name the prompt by `index`."""
        ids = self.tokenizer.encode(checked(prompt, index))
        return self.engine.info.special_ids.with_bos(ids)

    def _encode(self, prompt: str, *, index: int = 0) -> list[int]:
        """Return the ids of a prompt to continue, with a warning if it is longer than the window."""
        ids, window = self.prompt_ids(prompt, index=index), self.engine.info.window
        if len(ids) > window:
            warn(
                f"the prompt has {len(ids):,} tokens, but the model reads at most {window:,} at once: "
                "only the last tokens of the prompt are read"
            )
        return ids

    def _search_ids(
        self, prompts: Sequence[Sequence[int]], settings: SearchSettings, indices: Sequence[int]
    ) -> list[list[Hypothesis]]:
        vocab_size = self.engine.info.vocab_size
        for number, ids in enumerate(prompts):
            if not ids or not all(0 <= id < vocab_size for id in ids):
                raise UserError(
                    f"prompt {number}: must be ids from 0 to {vocab_size - 1}, at least one, found {list(ids)[:9]}"
                )
        requests = [
            Request(ids, continues=True, sample_key=(index, 0)) for index, ids in zip(indices, prompts, strict=True)
        ]
        return self.engine.search(requests, settings)


class ContinuationDecoder:
    """Decodes generated ids as the continuation of a prompt: the text of an id may depend on the ids before it."""

    def __init__(self, tokenizer: Tokenizer, prompt_ids: Sequence[int]) -> None:
        self._tokenizer = tokenizer
        self._prompt_ids = list(prompt_ids)
        self._prompt = tokenizer.decode(self._prompt_ids)
        self._emitted = ""
        self.ids: list[int] = []

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of all generated ids."""
        text = decode_generated(self._tokenizer, [*self._prompt_ids, *ids])
        return text[len(self._prompt) :] if text.startswith(self._prompt) else decode_generated(self._tokenizer, ids)

    def add(self, ids: Sequence[int]) -> str:
        """Add ids and return the text that they add; an incomplete character is held back until its last byte."""
        self.ids += ids
        return self._new(self.decode(self.ids).rstrip(UNFINISHED))

    def finish(self) -> str:
        """Return the text that was held back, after the last id."""
        return self._new(self.decode(self.ids))

    def _new(self, text: str) -> str:
        if not text.startswith(self._emitted):  # the new ids changed text that was emitted: wait for more ids
            return ""
        new, self._emitted = text[len(self._emitted) :], text
        return new


def _decode_stream(new_ids: Iterable[list[int]], decoder: ContinuationDecoder) -> Iterator[str]:
    for ids in new_ids:
        if text := decoder.add(ids):
            yield text
    if text := decoder.finish():
        yield text


def generation_settings(options: dict[str, Any], *, where: str = "generate") -> SearchSettings:
    """Build SearchSettings from options with the defaults of generation; an unknown option raises a UserError."""
    settings = search_settings({**DEFAULTS, **options}, where=where)
    if settings.shortlist:
        raise UserError(
            "shortlist = true: a shortlist holds the translations of source words, so text generation cannot use one; "
            "leave it out"
        )
    return settings


def _torch_engine(model: "Gpt", batch_rows: int, lanes: int | None) -> DecoderOnlyEngine:
    from heedful.decoding.engines.torch_engine import TorchEngine

    return TorchEngine(model, batch_rows=batch_rows, lanes=lanes)
