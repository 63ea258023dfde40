"""Which engine goes on from prompts. torch does all; CTranslate2 is mostly faster, where its results are the same.

Both are opened when they are first needed: who only draws pays for no conversion, who never draws for no torch.
"""

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from heedful.config import read_json
from heedful.decoding.engines.choose import EngineName, only_float32, require_device
from heedful.decoding.engines.ct2_engine import Compute
from heedful.decoding.engines.ct2_limits import why_not_prompt
from heedful.decoding.engines.ct2_writer import CTranslate2Writer
from heedful.decoding.engines.writer import Shape, Writer, read_shape
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.devices import device_name
from heedful.errors import UserError, one_of
from heedful.interop.ctranslate2 import why_not_values
from heedful.interop.ctranslate2_cache import Converted, NotConvertible, convert, find_conversion, refusal
from heedful.models.find import CONFIG, find_model_folder, require_family
from heedful.text import Tokenizer, has_tokenizers, load_tokenizers

if TYPE_CHECKING:
    from heedful.models.gpt import Gpt

MANY = 16  # prompts of one call
WIDE = 4_000_000  # weights of an output layer that a core's own caches cannot hold


def open_writer(
    path: str | Path, *, engine: str = "auto", compute: str = "float32", device: str = "cpu"
) -> tuple[Writer, Tokenizer | None]:
    """An engine for the decoder-only model of a run or a model folder, and the model's tokenizer, if it has one.

    `auto` takes CTranslate2 on a processor, for what it does with equal results, and torch for everything else.
    """
    if engine not in get_args(EngineName):
        raise one_of("engine", engine, get_args(EngineName))
    if compute not in get_args(Compute):
        raise one_of("compute", compute, get_args(Compute))
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
        self.shape: Shape = read_shape(folder)
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
    from heedful.decoding.engines.torch_writer import TorchWriter
    from heedful.models.folder import load_model
    from heedful.models.gpt import Gpt

    loaded = load_model(folder, device=device)
    return TorchWriter(loaded.expect(Gpt)), None if loaded.tokenizers is None else loaded.tokenizers.source
