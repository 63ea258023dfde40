"""Look inside an encoder-decoder while it translates one sentence.

    look = heedful.look("runs/en-de", "A dog runs.")
    look.translation.text, look.steps[0].top, look.attention["cross"].weights.values    # (L, H, T, S)
    look.save("page.html")

A look records one teacher-forced pass along a translation: the best hypothesis of the search, or a given translation.
Row t belongs to the query that produced token t.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from torch import Tensor

from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings, length_limit
from heedful.decoding.translator import Translator
from heedful.errors import UserError, invalid_choice
from heedful.insight.ablation import Head, WordOcclusion, as_heads, causes_of, without_heads
from heedful.insight.attention_maps import AttentionMaps, TokenAttention, attention_maps, word_alignment
from heedful.insight.attention_plot import draw_attention
from heedful.insight.attention_svg import KINDS
from heedful.insight.beam_tree import Beam, MemoryStep, as_written, search_watched
from heedful.insight.halting import HaltingWeights, halting_of
from heedful.insight.inputs import (
    LookModel,
    ModelFacts,
    Pieces,
    ShownSegment,
    choose_part,
    model_facts,
    open_look_model,
)
from heedful.insight.logit_lens import Lens, layer_lenses
from heedful.insight.look_file import Arrays, LookFile, attention_arrays, trace_values
from heedful.insight.model_layout import Writer
from heedful.insight.positions import Positions, position_facts
from heedful.insight.predictions import OutputStep, output_steps
from heedful.insight.trace import Trace, trace
from heedful.insight.walk import Walk, walk_through
from heedful.insight.word_spans import word_spans
from heedful.models.config_checks import check_positions
from heedful.models.model_io import LoadedModel
from heedful.nn.recording import structural_copy
from heedful.text import Tokenizer
from heedful.text.special_ids import SpecialIds
from heedful.text.tokenizer import decode_generated, generated_pieces

LONGEST_SOURCE, LONGEST_TARGET = 256, 512  # tokens; attention maps grow quadratically
Spans = tuple[tuple[int, int], ...]


@dataclass(frozen=True)
class SourceText:
    """The source segment: its tokens, and the spans of its words."""

    text: str
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    words: Spans
    masked: tuple[int, ...]


@dataclass(frozen=True)
class TargetText:
    """The translation that is shown: its tokens, and the decoder's inputs, which are the tokens shifted by one."""

    text: str
    kind: str  # "own", "reference" or "prefix"
    tokens: tuple[str, ...]
    ids: tuple[int, ...]
    words: Spans
    inputs: tuple[str, ...]
    input_ids: tuple[int, ...]
    input_words: Spans
    n_forced: int  # tokens that the model did not choose


@dataclass(frozen=True)
class OwnTranslation:
    """The best hypothesis of the model's own search."""

    text: str
    score: float
    normalized_score: float
    complete: bool


@dataclass(frozen=True)
class ChangedStep:
    """One token of the unchanged model's translation, with its probability before and after the change."""

    token: str
    id: int
    before: float
    after: float


@dataclass(frozen=True)
class Before:
    """The translation of the unchanged model."""

    text: str
    score: float


@dataclass(frozen=True)
class Changes:
    """Ablated heads, masked words, and their effect on the unchanged model's translation."""

    without_heads: tuple[Head, ...]
    masked_words: tuple[int, ...]
    before: Before
    steps: tuple[ChangedStep, ...]


@dataclass(frozen=True)
class Look(LookFile):
    """Everything about one translation of one sentence; docs/look.md describes each part.

    `tensors` holds every named tensor of the forward pass (`Trace.tensors`).
    """

    model: ModelFacts
    source: SourceText
    target: TargetText
    translation: OwnTranslation
    attention: dict[str, AttentionMaps]
    alignment: Spans
    steps: tuple[OutputStep, ...]
    beam: Beam
    positions: Positions
    lens: Lens
    causes: WordOcclusion | None
    walk: Walk
    halting: HaltingWeights | None
    changes: Changes | None
    pieces: Pieces | None
    tensors: dict[str, Tensor] = field(repr=False)

    def to_values(self) -> dict[str, object]:
        """Return the object of the trace file as plain values."""
        return trace_values({part.name: getattr(self, part.name) for part in fields(self) if part.name != "tensors"})

    def save(self, path: str | Path, *, layer: int | None = None, head: int | None = None, kind: str = "cross") -> Path:
        """Write a page (.html), the trace file (.json), all arrays (.npz) or a picture (.svg, .png, .pdf).

        A picture shows the attention of one `kind` ("encoder", "decoder" or "cross"); `layer` and `head` count from 1.
        """
        if kind not in KINDS:
            raise invalid_choice("kind", kind, KINDS)
        return self._save(Path(path), layer=layer, head=head, kind=kind)

    def attention_map(self, kind: str = "cross") -> TokenAttention:
        """Return the weights of one kind with the tokens of their columns (keys) and rows (queries)."""
        keys = {"cross": self.source.tokens, "encoder": self.source.tokens, "decoder": self.target.inputs}[kind]
        queries = self.source.tokens if kind == "encoder" else self.target.tokens
        return TokenAttention(keys, queries, torch.from_numpy(self.attention[kind].weights.values))

    def _draw(self, file: BinaryIO, format: str, *, layer: int | None, head: int | None, kind: str) -> None:
        draw_attention(self.attention_map(kind), file, format, layer=layer, head=head, kind=kind)

    def _arrays(self) -> Arrays:
        return {
            "source_ids": np.array(self.source.ids),
            "target_ids": np.array(self.target.ids),
            "target_input_ids": np.array(self.target.input_ids),
            **attention_arrays(self.attention),
        }


def look(
    model: LookModel | Translator | LoadedModel | str | Path,
    text: str,
    *,
    target: str | None = None,
    beam: int = 5,
    length_penalty: float = 1.0,
    prefix: Sequence[int] = (),
    without_heads: Iterable[tuple[str, int, int] | Head] = (),
    masked_words: Iterable[int] = (),
    branches: int = 0,
    piece: int | None = None,
) -> Look:
    """Translate one sentence and record everything that happens inside the model.

    A text is segmented as by a Translator: into lines, and lines that are too long for the model into sentences.
    `piece` chooses the segment to look at, counted from 0; the default is the first.

    Args:
        model: a folder, a run, a Translator or a loaded model.
        text: the source text.
        target: a translation to show instead of the model's own.
        beam: the width of the beam search.
        length_penalty: the length penalty of the search.
        prefix: ids that the translation must begin with.
        without_heads: heads to ablate, as ("encoder" | "decoder" | "cross", layer, head), counted from 0.
        masked_words: source words to mask, counted from 0. With ablated heads or masked words the look describes the
            changed model, and `changes` compares it with the unchanged one.
        branches: how many pruned branches of the beam to continue greedily to their end.
        piece: the segment to look at.

    Returns:
        A Look with attention, predictions, beam, positions, lenses, the walk and all tensors.
    """
    look_model = open_look_model(model)
    settings = SearchSettings(beam=beam, n_best=beam, length_penalty=length_penalty)
    if target is not None and prefix:
        raise UserError(
            "look: both a target and a prefix were given; a target is a whole translation, so give only one of them"
        )
    with torch.inference_mode():
        part = choose_part(look_model, text, target, piece)
        sentence = _Sentence(look_model, part, as_heads(look_model.model, without_heads), tuple(masked_words), settings)
        return sentence.look(tuple(prefix), branches)


class _Sentence:
    """One sentence and one model, with or without ablated heads and masked words."""

    def __init__(
        self,
        look_model: LookModel,
        part: ShownSegment,
        heads: tuple[Head, ...],
        masked_words: tuple[int, ...],
        settings: SearchSettings,
    ) -> None:
        self.look_model = look_model
        self.part = part
        self.heads = heads
        self.masked_words = masked_words
        self.tokenizer: Tokenizer = look_model.tokenizers.target
        self.special_ids = look_model.model.config.special_ids
        self.device = next(look_model.model.parameters()).device
        self.whole = structural_copy(look_model.model).eval()  # the model itself keeps its mode
        self.changed = without_heads(self.whole, heads) if heads else self.whole
        self.segment_ids = part.segment.ids  # without special tokens
        self.source = _read_source(look_model, part, masked_words)
        self.settings = settings_within(settings, len(self.source.ids))
        self.source_ids = torch.tensor([self.source.ids], device=self.device)
        self.unmasked = torch.ones_like(self.source_ids, dtype=torch.bool)
        self.mask = self.unmasked.clone()
        self.mask[0, list(self.source.masked)] = False

    def look(self, prefix: tuple[int, ...], branches: int) -> Look:
        _check_prefix(prefix, self.tokenizer, self.special_ids)
        request = Request(self.segment_ids, prefix)
        memory = self.changed.encode(self.source_ids, self.mask)
        step = MemoryStep(self.changed, memory)
        hypotheses, beam = search_watched(step, request, self.settings, self.tokenizer, branches=branches)
        shown = self._shown(hypotheses[0], self.part.target, prefix)
        t, logits = self._traced(shown)
        target_in = torch.tensor([shown.input_ids], device=self.device)
        special = {self.special_ids.start_id, self.special_ids.eos_id, *self.special_ids.with_source_bos([])}
        maps = attention_maps(t, self.source.ids, shown.ids, special)
        return Look(
            model=model_facts(t, self.look_model.name),
            source=self.source,
            target=shown,
            translation=OwnTranslation(
                decode_generated(self.tokenizer, hypotheses[0].ids),
                hypotheses[0].score,
                hypotheses[0].normalized_score,
                hypotheses[0].complete,
            ),
            attention=maps,
            alignment=word_alignment(
                torch.from_numpy(maps["cross"].weights.values), self.source.ids, shown.ids, special
            ),
            steps=output_steps(logits, shown.ids, self.tokenizer),
            beam=beam,
            positions=position_facts(self.whole, max(len(self.source.ids), len(shown.ids))),
            lens=layer_lenses(t, self.segment_ids, self.source_ids, target_in, shown.ids, memory, self.tokenizer),
            causes=causes_of(self.changed, self.source_ids, self.mask, self.source.words, target_in, shown.ids),
            walk=walk_through(t),
            halting=halting_of(t),
            changes=self._changes(request) if self.heads or self.masked_words else None,
            pieces=self.part.pieces,
            tensors=t.tensors(),
        )

    def _shown(self, best: Hypothesis, target: str | None, prefix: tuple[int, ...]) -> TargetText:
        if target is None:
            ids, complete = best.ids, best.complete
            text, kind = decode_generated(self.tokenizer, ids), "prefix" if prefix else "own"
        else:
            ids, complete = self.tokenizer.encode(target), True
            text, kind = target, "reference"
            if len(ids) >= LONGEST_TARGET:
                raise UserError(
                    f"target: {len(ids)} tokens; look shows at most {LONGEST_TARGET - 1}: give one sentence"
                )
        target_ids = as_written(ids, self.special_ids, complete=complete)
        _check_length(self.whole, len(target_ids))
        input_ids = (self.special_ids.start_id, *target_ids[:-1])
        tokens = tuple(generated_pieces(self.tokenizer, target_ids))
        inputs = tuple(generated_pieces(self.tokenizer, input_ids))
        return TargetText(
            text=text,
            kind=kind,
            tokens=tokens,
            ids=target_ids,
            words=tuple(word_spans(tokens)),
            inputs=inputs,
            input_ids=input_ids,
            input_words=tuple(word_spans(inputs)),
            n_forced=len(target_ids)
            if kind == "reference"
            else min(self.special_ids.n_forced + len(prefix), len(target_ids)),
        )

    def _traced(self, shown: TargetText) -> tuple[Trace[Writer], Tensor]:
        with trace(self.changed) as t:
            logits = t.model(self.source_ids, torch.tensor([shown.input_ids], device=self.device), self.mask)
        return t, logits[0]

    def _changes(self, request: Request) -> Changes:
        """Compare the probabilities of the unchanged model's translation before and after the change."""
        step = MemoryStep(self.whole, self.whole.encode(self.source_ids, self.unmasked))
        hypotheses, _ = search_watched(step, request, self.settings, self.tokenizer)
        shown = self._shown(hypotheses[0], None, tuple(request.prefix))
        target_in = torch.tensor([shown.input_ids], device=self.device)
        before = output_steps(self.whole(self.source_ids, target_in, self.unmasked)[0], shown.ids, self.tokenizer)
        after = output_steps(self.changed(self.source_ids, target_in, self.mask)[0], shown.ids, self.tokenizer)
        return Changes(
            without_heads=self.heads,
            masked_words=self.masked_words,
            before=Before(shown.text, hypotheses[0].score),
            steps=tuple(
                ChangedStep(old.token, old.id, old.probability, new.probability)
                for old, new in zip(before, after, strict=True)
            ),
        )


def settings_within(settings: SearchSettings, n_source: int) -> SearchSettings:
    """Limit the length of a search to the longest translation that a look shows."""
    limit = min(length_limit(n_source), LONGEST_TARGET)
    return SearchSettings(
        beam=settings.beam, n_best=settings.n_best, length_penalty=settings.length_penalty, max_len=limit
    )


def _check_length(model: Writer, length: int) -> None:
    """Raise a UserError if the model has fewer learned positions than tokens."""
    if model.max_length is not None:
        check_positions(length, model.max_length)


def _read_source(look_model: LookModel, part: ShownSegment, masked_words: tuple[int, ...]) -> SourceText:
    tokenizer, special_ids = look_model.tokenizers.source, look_model.model.config.special_ids
    ids = (*special_ids.with_source_bos(part.segment.ids), special_ids.eos_id)
    if len(ids) > LONGEST_SOURCE:
        which = "the text" if part.pieces is None else f"segment {part.pieces.number + 1} of the text"
        raise UserError(
            f"look: {which} has {len(ids) - 1} tokens, and look shows {LONGEST_SOURCE - 1} at most: give one sentence"
        )
    _check_length(look_model.model, len(ids))
    tokens = tuple(generated_pieces(tokenizer, ids))
    words = tuple(word_spans(tokens))
    for word in masked_words:
        if not 0 <= word < len(words):
            raise UserError(
                f"masked_words: {word} would be word number {word + 1}, "
                f"and this sentence has {len(words)}, the end token included"
            )
    masked = tuple(sorted({i for word in masked_words for i in range(*words[word])}))
    if len(masked) == len(ids):
        raise UserError("masked words: all words are masked, so nothing is left to translate")
    return SourceText(part.segment.text, tokens, ids, words, masked)


def _check_prefix(prefix: tuple[int, ...], tokenizer: Tokenizer, special_ids: SpecialIds) -> None:
    for id in prefix:
        if not 0 <= id < tokenizer.vocab_size or id in (special_ids.pad_id, special_ids.start_id, special_ids.eos_id):
            raise UserError(f"prefix: {id} is not the id of a piece; valid ids are 0 to {tokenizer.vocab_size - 1}")
    if len(prefix) >= LONGEST_TARGET:
        raise UserError(f"prefix: {len(prefix)} ids; look shows at most {LONGEST_TARGET - 1}")
