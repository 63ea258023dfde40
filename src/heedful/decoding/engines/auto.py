"""Choose the engine of a model: torch runs every model; CTranslate2 is faster, where its results are the same.

`open_engine` opens the model of a folder. With `engine="auto"` it returns an `AutoEngine`, which decides for each
request. Nothing here imports torch before it is needed: if the model is already converted, opening it takes a tenth of
the time.
"""

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from heedful.config import read_json
from heedful.decoding.engines.base import DecoderOnlyEngine, DecoderOnlyInfo, Engine, read_decoder_only_info
from heedful.decoding.engines.ctranslate2_engine import Compute, CTranslate2Engine
from heedful.decoding.engines.ctranslate2_generator import CTranslate2Generator
from heedful.decoding.engines.ctranslate2_support import why_not_device, why_not_prompt
from heedful.decoding.engines.ctranslate2_tuning import Speed
from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.devices import device_name
from heedful.errors import UserError, invalid_choice
from heedful.interop.ctranslate2.cache import Converted, convert, find_conversion
from heedful.interop.ctranslate2.conversion import NotConvertible, not_convertible
from heedful.interop.ctranslate2.model_config import why_not
from heedful.models.configs import read_config
from heedful.models.model_info import CONFIG, ENCODER_DECODERS, card_languages, find_model_folder, require_family
from heedful.text import Tokenizers, has_tokenizers, load_tokenizers

if TYPE_CHECKING:
    from heedful.decoding.engines.torch_engine import TorchEngine
    from heedful.models.gpt import Gpt

EngineName = Literal["auto", "torch", "ctranslate2"]

MANY_PROMPTS = 16  # prompts of one call from which on torch is faster, for a model with a wide output layer
WIDE_OUTPUT = 4_000_000  # least weights of a wide output layer: more than a core's own caches hold


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
    """Open the model of a run or a model folder; with `others`, models of the same vocabulary, an ensemble.

    `engine`: "auto" uses CTranslate2 if it runs this model with the same results on this device, and torch for what
    CTranslate2 cannot do. "torch" and "ctranslate2" use only that one. `compute`: "int8" is for CTranslate2 only.
    `device`: cpu, cuda, cuda:N or mps. `threads`: at most so many CPU threads; by default as many as were measured to
    be fastest. `scores=False` lets greedy search in CTranslate2 leave out the softmax; scores are then NaN.
    """
    if engine not in get_args(EngineName):
        raise invalid_choice("engine", engine, get_args(EngineName))
    if compute not in get_args(Compute):
        raise invalid_choice("compute", compute, get_args(Compute))
    folder = find_model_folder(path)
    require_family(folder, *ENCODER_DECODERS, "gpt")
    device = device_name(device)
    if others:
        if engine == "ctranslate2":
            raise UserError("CTranslate2 runs one model at a time, no ensemble. Use --engine torch")
        return _ensemble([folder, *_that_fit(folder, others)], compute, device, threads)
    numbers: Compute = "int8" if compute == "int8" else "float32"
    if read_json(folder / CONFIG).get("family") == "gpt":
        return _open_decoder_only(folder, engine, numbers, device, threads)
    if engine == "torch":
        return _torch_only(folder, numbers, device, threads)
    try:
        require_device(device)
        converted = convert(folder)
    except NotConvertible as error:
        if engine == "ctranslate2":
            raise
        return _torch_only(folder, numbers, device, threads, why=str(error))
    speed = None if threads is None or device != "cpu" else Speed(inter=threads)
    fast = CTranslate2Engine(converted, compute=numbers, device=device, speed=speed, scores=scores)
    if engine == "ctranslate2":
        return fast
    return AutoEngine(
        lambda: fast,
        partial(_open_torch, folder, device, threads),
        why_not=fast.why_not,
        compute=numbers,
        converted=converted,
    )


def _open_decoder_only(
    folder: Path, engine: str, compute: Compute, device: str, threads: int | None
) -> DecoderOnlyEngine:
    """Open a decoder-only model. CTranslate2 is chosen on CPUs only, since nobody has measured it on a GPU."""
    reason = why_not(read_config(folder)[1])
    if engine == "ctranslate2" and reason is not None:
        raise not_convertible(folder, reason)
    if engine == "torch" or reason is not None or (engine == "auto" and device != "cpu" and compute == "float32"):
        return _torch_only(
            folder, compute, device, threads, why="" if reason is None else str(not_convertible(folder, reason))
        )
    require_device(device)
    info = read_decoder_only_info(folder)

    def open_fast() -> CTranslate2Generator:
        converted = find_conversion(folder) or convert(folder)
        return CTranslate2Generator(converted, info, compute=compute, device=device, threads=threads)

    if engine == "ctranslate2":
        return open_fast()
    return AutoEngine(
        open_fast,
        partial(_open_torch, folder, device, threads),
        why_not=partial(_why_not_prompts, info),
        compute=compute,
        converted=find_conversion(folder),
        info=info,
        n_requests_for_torch=MANY_PROMPTS
        if compute == "float32" and device == "cpu" and has_wide_output(folder)
        else None,
    )


def _why_not_prompts(info: DecoderOnlyInfo, requests: Sequence[Request], settings: SearchSettings) -> str | None:
    reasons = (why_not_prompt(request, settings, info) for request in requests)
    return next((reason for reason in reasons if reason is not None), None)


def open_tokenizers(path: str | Path, engine: Engine | None = None) -> Tokenizers | None:
    """Load the tokenizers of a model folder; None if it has none.

    If the engine has a conversion of the model, its tokenizers were checked then, and load faster.
    """
    folder = find_model_folder(path)
    if not has_tokenizers(folder):
        return None
    converted = getattr(engine, "converted", None)
    return converted.load_tokenizers() if isinstance(converted, Converted) else load_tokenizers(folder)


class AutoEngine:
    """CTranslate2, and torch for the requests and settings that CTranslate2 would answer differently.

    Each of the two is opened when it is first needed. `why_not` says what CTranslate2 cannot do, `converted` is the
    conversion that is in use, if there is one. Calls with at least `n_requests_for_torch` requests go to torch.
    """

    name = "auto"

    def __init__(
        self,
        open_fast: Callable[[], Engine],
        open_torch: Callable[[], "TorchEngine"],
        *,
        why_not: Callable[[Sequence[Request], SearchSettings], str | None],
        compute: Compute = "float32",
        converted: Converted | None = None,
        info: DecoderOnlyInfo | None = None,
        n_requests_for_torch: int | None = None,
    ) -> None:
        self._open_fast, self._open_torch = open_fast, open_torch
        self._why_not_fast = why_not
        self.compute: Compute = compute
        self.converted = converted
        self._info = info
        self._n_requests_for_torch = n_requests_for_torch
        self._fast: Engine | None = None
        self._slow: TorchEngine | None = None
        self._opening = threading.RLock()

    @property
    def info(self) -> DecoderOnlyInfo:
        """The facts of a decoder-only model."""
        assert self._info is not None, "only decoder-only models continue prompts"
        return self._info

    @property
    def torch_model(self) -> "Gpt":
        return self.torch_engine("it has no model in torch").torch_model

    @property
    def fast(self) -> Engine:
        """The CTranslate2 engine; torch's if no folder can hold the conversion."""
        with self._opening:
            if self._fast is None:
                try:
                    self._fast = self._open_fast()
                except NotConvertible as error:
                    return self.torch_engine(str(error))
            return self._fast

    def torch_engine(self, reason: str) -> "TorchEngine":
        """The torch engine; `reason` says why CTranslate2 cannot do what is needed, for the error if torch cannot."""
        if self.compute != "float32":
            raise UserError(f"compute = '{self.compute}': only CTranslate2 has it, and it cannot do this: {reason}")
        with self._opening:
            if self._slow is None:
                self._slow = self._open_torch()
            return self._slow

    def why_not(self, requests: Sequence[Request], settings: SearchSettings) -> str | None:
        return None if self.compute == "float32" else self._why_not_fast(requests, settings)

    def search(
        self, requests: Sequence[Request], settings: SearchSettings, *, callback: SearchCallback | None = None
    ) -> list[list[Hypothesis]]:
        if self._n_requests_for_torch is not None and len(requests) >= self._n_requests_for_torch:
            return self.torch_engine("").search(requests, settings, callback=callback)
        for_all = self._why_not_fast([], settings)
        reasons = [for_all or self._why_not_fast([request], settings) for request in requests]
        results: list[list[Hypothesis]] = [[] for _ in requests]
        for is_fast in (True, False):
            indices = [index for index, reason in enumerate(reasons) if (reason is None) == is_fast]
            if indices:
                hypotheses = self._search_with(
                    None if is_fast else reasons[indices[0]],
                    [requests[index] for index in indices],
                    settings,
                    callback and callback.for_requests(indices),
                )
                for index, best in zip(indices, hypotheses, strict=True):
                    results[index] = best
        return results

    def stream(self, request: Request, settings: SearchSettings) -> Iterator[list[int]]:
        reason = self._why_not_fast([request], settings)
        if reason is None:
            return self.fast.stream(request, settings)
        return self.torch_engine(reason).stream(request, replace(settings, shortlist=False))

    def _search_with(
        self, reason: str | None, requests: Sequence[Request], settings: SearchSettings, callback: SearchCallback | None
    ) -> list[list[Hypothesis]]:
        if reason is None:
            return self.fast.search(requests, settings, callback=callback)
        settings = replace(settings, shortlist=False)  # torch has none
        return self.torch_engine(reason).search(requests, settings, callback=callback)


def require_device(device: str) -> None:
    """Refuse a device that CTranslate2 cannot compute on; the name is one of `device_name`'s."""
    reason = why_not_device(device)
    if reason is not None:
        raise NotConvertible(f"device = {device!r}: CTranslate2 cannot use it: {reason}")


def _torch_only(folder: Path, compute: str, device: str, threads: int | None, *, why: str = "") -> "TorchEngine":
    """Open a model in torch; `why` says why CTranslate2 cannot run it, if torch was not the user's choice."""
    if compute != "float32":
        raise only_float32(compute, why)
    words = "CTranslate2 cannot run this model here (--engine ctranslate2 says why), and torch has none; leave it out"
    return _open_torch(folder, device, threads, no_shortlist=words if why else None)


def only_float32(compute: str, why: str = "") -> UserError:
    """The error for int8 without CTranslate2; `why` CTranslate2 is not used, if the user did not choose torch."""
    reason = f"\n{why}" if why else ""
    return UserError(f"compute = '{compute}': only the CTranslate2 engine has it; use float32 with torch{reason}")


def _ensemble(folders: Sequence[Path], compute: str, device: str, threads: int | None) -> "TorchEngine":
    if compute != "float32":
        raise only_float32(compute, "CTranslate2 runs one model at a time, no ensemble")
    words = "several models together run on torch, which has none; leave it out"
    return _open_torch(folders[0], device, threads, others=folders[1:], no_shortlist=words)


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


def _open_torch(
    folder: Path,
    device: str,
    threads: int | None = None,
    *,
    others: Sequence[Path] = (),
    no_shortlist: str | None = None,
) -> "TorchEngine":
    import torch

    from heedful.decoding.engines.torch_engine import TorchEngine
    from heedful.models.encoder_decoder import encoder_decoder
    from heedful.models.gpt import Gpt
    from heedful.models.model_io import load_model

    if threads is not None:
        torch.set_num_threads(threads)
    loaded = load_model(folder, device=device)
    if loaded.family == "gpt":
        return TorchEngine(loaded.expect(Gpt))
    more = [encoder_decoder(load_model(other, device=device)) for other in others]
    return TorchEngine(encoder_decoder(loaded), others=more, no_shortlist=no_shortlist)


def has_wide_output(folder: Path) -> bool:
    """Whether most weights of a decoder-only model are in its output layer.

    In float32 each of CTranslate2's threads reads them all for its own part of many prompts. torch reads them once for
    all prompts, and is twice as fast there.
    """
    values = read_json(folder / CONFIG)
    sizes = [size for name in ("vocab_size", "d_model", "n_layers", "d_ff") if type(size := values.get(name)) is int]
    if len(sizes) < 4:
        return False  # a size is left to its default, or is no number: opening the model reports that
    vocab_size, width, n_layers, d_ff = sizes
    return vocab_size * width > max(WIDE_OUTPUT, n_layers * width * (4 * width + 2 * d_ff))
