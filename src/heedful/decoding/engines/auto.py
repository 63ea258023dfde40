"""Which engine runs a model. torch runs all; CTranslate2 is faster, where its results are the same.

With a conversion already there, nothing here imports torch: opening a model then takes a tenth of a second.

Which engine goes on from prompts. torch does all; CTranslate2 is mostly faster, where its results are the same.

Both are opened when they are first needed: who only draws pays for no conversion, who never draws for no torch.
"""

import itertools
import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from heedful.config import read_json
from heedful.decoding.engines.base import DecoderOnlyInfo, Engine, Writer, read_shape
from heedful.decoding.engines.ctranslate2_engine import Compute, CTranslate2Engine
from heedful.decoding.engines.ctranslate2_generator import CTranslate2Writer
from heedful.decoding.engines.ctranslate2_support import why_not_device, why_not_prompt
from heedful.decoding.engines.ctranslate2_tuning import Speed
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.devices import device_name
from heedful.errors import UserError, invalid_choice
from heedful.interop.ctranslate2.cache import Converted, NotConvertible, convert, find_conversion, refusal
from heedful.interop.ctranslate2.spec import why_not_values
from heedful.models.model_info import CONFIG, ENCODER_DECODERS, card_languages, find_model_folder, require_family
from heedful.text import Tokenizer, Tokenizers, has_tokenizers, load_tokenizers

if TYPE_CHECKING:
    from heedful.models.gpt import Gpt

EngineName = Literal["auto", "torch", "ctranslate2"]


def open_engine(
    path: str | Path,
    *,
    others: Sequence[str | Path] = (),
    engine: str = "auto",
    compute: str = "float32",
    device: str = "cpu",
    threads: int | None = None,
    scores: bool = True,
) -> Engine:
    """An engine for the model of a run or a model folder; with `others` of the same vocabulary it is an ensemble.

    `auto` takes CTranslate2 for a model that it runs with equal results on a device that it can use, and for what it
    cannot do torch. `device`: cpu, cuda, cuda:N or mps. `threads` of a processor: at most so many, by default as
    measured to be fastest. `scores` is CTranslate2Engine's.
    """
    if engine not in get_args(EngineName):
        raise invalid_choice("engine", engine, get_args(EngineName))
    if compute not in get_args(Compute):
        raise invalid_choice("compute", compute, get_args(Compute))
    folder = find_model_folder(path)
    require_family(folder, *ENCODER_DECODERS)
    device = device_name(device)
    if others:
        if engine == "ctranslate2":
            raise UserError("CTranslate2 runs one model at a time, no ensemble. Use --engine torch")
        return _ensemble([folder, *_that_fit(folder, others)], compute, device, threads)
    if engine == "torch":
        return _torch_only(folder, compute, device, threads)
    try:
        require_device(device)
        converted = convert(folder)
    except NotConvertible as error:
        if engine == "ctranslate2":
            raise
        return _torch_only(folder, compute, device, threads, why=str(error))
    fast = CTranslate2Engine(
        converted,
        compute="int8" if compute == "int8" else "float32",
        device=device,
        speed=None if threads is None or device != "cpu" else Speed(inter=threads),
        scores=scores,
    )
    return fast if engine == "ctranslate2" else AutoEngine(fast, folder, threads=threads)


def open_tokenizers(path: str | Path, engine: Engine | None = None) -> Tokenizers | None:
    """The tokenizers of a model folder, None if it has none; at once if the engine's conversion vouches for them."""
    folder = find_model_folder(path)
    if not has_tokenizers(folder):
        return None
    converted = getattr(engine, "converted", None)
    return converted.load_tokenizers() if isinstance(converted, Converted) else load_tokenizers(folder)


class AutoEngine:
    """CTranslate2, and torch for those requests and settings that it would answer differently."""

    name = "auto"

    def __init__(self, fast: CTranslate2Engine, folder: Path, *, threads: int | None = None) -> None:
        self.fast = fast
        self.converted = fast.converted
        self._folder = folder
        self._threads = threads
        self._slow: Engine | None = None
        self._opening = threading.Lock()

    def search(self, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        reason = self.fast.why_not([], settings)
        if reason is not None:
            return self._search_with_torch(requests, settings, reason)
        reasons = [self.fast.why_not([request], settings) for request in requests]
        easy = [reason is None for reason in reasons]
        found = iter(self.fast.search([one for one, is_easy in zip(requests, easy, strict=True) if is_easy], settings))
        hard = [request for request, is_easy in zip(requests, easy, strict=True) if not is_easy]
        if not hard:
            return list(found)
        why = next(reason for reason in reasons if reason is not None)
        others = iter(self._search_with_torch(hard, settings, why))
        return [next(found if is_easy else others) for is_easy in easy]

    def _search_with_torch(
        self, requests: Sequence[Request], settings: SearchSettings, reason: str
    ) -> list[list[Hypothesis]]:
        return self._torch(reason).search(requests, replace(settings, shortlist=False))  # torch has none

    def _torch(self, reason: str) -> Engine:
        compute = self.fast.compute
        if compute != "float32":
            raise UserError(f"compute = '{compute}': only CTranslate2 has it, and it cannot do this: {reason}")
        with self._opening:
            if self._slow is None:
                self._slow = _torch_engine(self._folder, self.fast.device, self._threads)
            return self._slow


def require_device(device: str) -> None:
    """Refuse one that CTranslate2 cannot compute on; the name is one of `device_name`'s."""
    reason = why_not_device(device)
    if reason is not None:
        raise NotConvertible(f"device = {device!r}: CTranslate2 cannot use it: {reason}")


def _torch_only(folder: Path, compute: str, device: str, threads: int | None, *, why: str = "") -> Engine:
    if compute != "float32":
        raise only_float32(compute, why)
    words = "CTranslate2 cannot run this model here (--engine ctranslate2 says why), and torch has none; leave it out"
    return _torch_engine(folder, device, threads, no_shortlist=words if why else None)


def only_float32(compute: str, why: str = "") -> UserError:
    """`why` CTranslate2 cannot do it, where that is not the user's wish."""
    reason = f"\n{why}" if why else ""
    return UserError(f"compute = '{compute}': only the CTranslate2 engine has it; use float32 with torch{reason}")


def _ensemble(folders: Sequence[Path], compute: str, device: str, threads: int | None) -> Engine:
    if compute != "float32":
        raise only_float32(compute, "CTranslate2 runs one model at a time, no ensemble")
    words = "several models together run on torch, which has none; leave it out"
    return _torch_engine(folders[0], device, threads, others=folders[1:], no_shortlist=words)


def _that_fit(folder: Path, others: Sequence[str | Path]) -> list[Path]:
    """The folders of the other models; all must translate the same way, and their ids mean the same."""
    found = [find_model_folder(other) for other in others]
    for other in found:
        require_family(other, *ENCODER_DECODERS)
    for one, other in itertools.combinations([folder, *found], 2):
        _require_one_way(one, other)
    first = _vocabularies(folder)
    for other in found:
        for side, ours, theirs in zip(("source", "target"), first, _vocabularies(other), strict=True):
            if ours != theirs:
                raise UserError(
                    f"{folder} and {other} cannot translate together: the vocabularies of their {side} differ "
                    f"({len(ours):,} and {len(theirs):,} pieces). Models that were trained on the same files with the "
                    "same [tokenizer] settings have one vocabulary, whatever their seed"
                )
    return found


def _require_one_way(folder: Path, other: Path) -> None:
    """Models of both directions may have one vocabulary. A card that does not name two languages says nothing."""
    ours, theirs = _languages(folder), _languages(other)
    if len(ours) == len(theirs) == 2 and ours != theirs:
        raise UserError(
            f"{folder} and {other} cannot translate together: by their cards the first goes from {' to '.join(ours)}, "
            f"the second from {' to '.join(theirs)}. Name models of the same two languages"
        )


def _languages(folder: Path) -> list[str]:
    """Those of its card, without script or region, which two cards of one language may write differently."""
    return [code.replace("_", "-").split("-")[0].lower() for code in card_languages(folder)]


def _vocabularies(folder: Path) -> tuple[list[str], list[str]]:
    tokenizers = load_tokenizers(folder)
    source, target = ([*each.pieces(range(each.vocab_size))] for each in (tokenizers.source, tokenizers.target))
    return source, target


def _torch_engine(
    folder: Path, device: str, threads: int | None, *, others: Sequence[Path] = (), no_shortlist: str | None = None
) -> Engine:
    import torch

    from heedful.decoding.engines.torch_engine import TorchEngine
    from heedful.models.encoder_decoder import encoder_decoder
    from heedful.models.model_io import load_model

    if threads is not None:
        torch.set_num_threads(threads)
    model, *more = (encoder_decoder(load_model(each, device=device)) for each in (folder, *others))
    return TorchEngine(model, others=more, no_shortlist=no_shortlist)


MANY = 16  # prompts of one call
WIDE = 4_000_000  # weights of an output layer that a core's own caches cannot hold


def open_writer(
    path: str | Path, *, engine: str = "auto", compute: str = "float32", device: str = "cpu"
) -> tuple[Writer, Tokenizer | None]:
    """An engine for the decoder-only model of a run or a model folder, and the model's tokenizer, if it has one.

    `auto` takes CTranslate2 on a processor, for what it does with equal results, and torch for everything else.
    """
    if engine not in get_args(EngineName):
        raise invalid_choice("engine", engine, get_args(EngineName))
    if compute not in get_args(Compute):
        raise invalid_choice("compute", compute, get_args(Compute))
    numbers: Compute = "int8" if compute == "int8" else "float32"
    folder = find_model_folder(path)
    require_family(folder, "gpt")
    device = device_name(device)
    values = read_json(folder / CONFIG)
    reason = why_not_values(values) if values.get("family") == "gpt" else "it is no model that heedful knows"
    if engine == "ctranslate2":
        if reason is not None:
            raise refusal(folder, reason)
        require_device(device)
        converted = convert(folder)
        opened = CTranslate2Writer(converted, read_shape(folder), compute=numbers, device=device)
        return opened, _tokenizer(folder, converted)
    if engine == "torch" or reason is not None or (device != "cpu" and compute == "float32"):
        if compute != "float32":
            raise only_float32(compute, "" if reason is None else str(refusal(folder, reason)))
        return _open_torch(folder, device)
    require_device(device)
    auto = AutoWriter(folder, compute=numbers, device=device)
    return auto, _tokenizer(folder, auto.converted)


class AutoWriter:
    """CTranslate2, and torch for what that would answer differently, or for many prompts slower."""

    name = "auto"

    def __init__(self, folder: Path, *, compute: Compute = "float32", device: str = "cpu") -> None:
        self.folder = folder
        self.shape: DecoderOnlyInfo = read_shape(folder)
        self.compute: Compute = compute
        self.device = device
        self.converted = find_conversion(folder)
        self._is_wide = compute == "float32" and device == "cpu" and has_wide_output(folder)
        self._fast: CTranslate2Writer | None = None
        self._slow: Writer | None = None
        self._opening = threading.Lock()

    def in_torch(self) -> "Gpt":
        return self._torch("it has no model in torch").in_torch()

    def search(self, requests: Sequence[Request], settings: SearchSettings) -> list[list[Hypothesis]]:
        if self._is_wide and len(requests) >= MANY:
            return self._torch("").search(requests, settings)
        reasons = [why_not_prompt(request, settings, self.shape) for request in requests]
        easy = [request for request, reason in zip(requests, reasons, strict=True) if reason is None]
        hard = [request for request, reason in zip(requests, reasons, strict=True) if reason is not None]
        found = iter(self._ctranslate2().search(easy, settings) if easy else [])
        why = next((reason for reason in reasons if reason is not None), "")
        others = iter(self._torch(why).search(hard, settings) if hard else [])
        return [next(found if reason is None else others) for reason in reasons]

    def stream(self, request: Request, settings: SearchSettings) -> Iterator[list[int]]:
        reason = why_not_prompt(request, settings, self.shape)
        return (self._ctranslate2() if reason is None else self._torch(reason)).stream(request, settings)

    def _ctranslate2(self) -> Writer:
        try:
            self.converted = self.converted or convert(self.folder)
        except NotConvertible as error:  # there is no place at all where it could be
            return self._torch(str(error))
        with self._opening:
            if self._fast is None:
                self._fast = CTranslate2Writer(self.converted, self.shape, compute=self.compute, device=self.device)
            return self._fast

    def _torch(self, reason: str) -> Writer:
        if self.compute != "float32":
            raise UserError(f"compute = '{self.compute}': only CTranslate2 has it, and it cannot do this: {reason}")
        with self._opening:
            if self._slow is None:
                self._slow, _ = _open_torch(self.folder, self.device)
            return self._slow


def has_wide_output(folder: Path) -> bool:
    """Whether most weights of a model are in its output layer.

    In float32 each of CTranslate2's threads reads them all for its own part of many prompts; torch reads them once for
    all prompts, and is twice as fast there.
    """
    values = read_json(folder / CONFIG)
    sizes = [size for name in ("vocab_size", "d_model", "n_layers", "d_ff") if type(size := values.get(name)) is int]
    if len(sizes) < 4:
        return False  # one is left to its default, or is wrong, which is said when the model is opened
    vocab_size, width, n_layers, d_ff = sizes
    return vocab_size * width > max(WIDE, n_layers * width * (4 * width + 2 * d_ff))


def _tokenizer(folder: Path, converted: Converted | None) -> Tokenizer | None:
    """At once if a conversion vouches for it."""
    if not has_tokenizers(folder):
        return None
    return (load_tokenizers(folder) if converted is None else converted.load_tokenizers()).source


def _open_torch(folder: Path, device: str) -> tuple[Writer, Tokenizer | None]:
    from heedful.decoding.engines.torch_engine import TorchWriter
    from heedful.models.gpt import Gpt
    from heedful.models.model_io import load_model

    loaded = load_model(folder, device=device)
    return TorchWriter(loaded.expect(Gpt)), None if loaded.tokenizers is None else loaded.tokenizers.source
