"""Write models as ONNX graphs. Each graph is run once in ONNX Runtime and its outputs are compared with torch's.

An encoder-decoder becomes two graphs. The cache of keys and values is an input and an output of the decoder:

    encoder.onnx   source, source_mask -> memory_key_i, memory_value_i       once for each text
    decoder.onnx   tokens, source_mask, memory_*, past_key_i, past_value_i -> logits, key_i, value_i    at every step

Any other family becomes one graph, model.onnx, from ids (for BERT with a mask) or pixels to logits.
"""

import contextlib
import importlib.util
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import torch
from torch import Tensor, nn

from heedful.atomic_io import atomic_folder, write_json
from heedful.config import config_to_dict
from heedful.errors import MissingExtra, UserError
from heedful.models.model_info import CONFIG, ENCODER_DECODERS, find_model_folder
from heedful.models.model_io import load_model
from heedful.nn.stacks import Memory
from heedful.text import save_tokenizers

if TYPE_CHECKING:
    from heedful.nn.kv_cache import Cache

ENCODER, DECODER, MODEL = "encoder.onnx", "decoder.onnx", "model.onnx"
TOLERANCE = 1e-3  # absolute, for logits of the order of ten in float32


def export_onnx(folder: str | Path, output: str | Path) -> Path:
    """Write a model folder (or the best model of a run) as ONNX graphs, with its config and tokenizers."""
    _require_extra()
    source, output = find_model_folder(folder), Path(output)
    loaded = load_model(source)
    model: nn.Module = loaded.model.float()
    reason = why_not(loaded.family, loaded.model.config)
    if reason is not None:
        raise UserError(f"{source}: cannot be written as ONNX: {reason}")
    with atomic_folder(output) as aside:
        if loaded.family in ENCODER_DECODERS:
            _write_two(model, aside)
        else:
            _write_one(model, loaded.family, aside)
        values = {"format": "onnx", "family": loaded.family, **config_to_dict(loaded.model.config)}
        write_json(aside / CONFIG, values)
        if loaded.tokenizers is not None:
            save_tokenizers(aside, loaded.tokenizers)
    return output


def why_not(family: str, config: Any) -> str | None:
    """Return why a model cannot be written as ONNX; None if it can."""
    pattern = getattr(getattr(config, "pattern", None), "kind", "full")
    refusals = {
        "the family 'universal' decides at each step whether to continue, which a graph cannot": family == "universal",
        f"pattern '{pattern}': only full attention can be written": pattern != "full",
        "norm = 'batch' is not supported": getattr(config, "norm", None) == "batch",
    }
    return next((reason for reason, applies in refusals.items() if applies), None)


class _KeysAndValues:
    """Keys and values of one attention layer, given as tensors; `append` concatenates and keeps the result."""

    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values

    @property
    def length(self) -> int:
        return self.keys.size(2)

    def append(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        self.keys, self.values = torch.cat([self.keys, k], dim=2), torch.cat([self.values, v], dim=2)
        return self.read()

    def read(self) -> tuple[Tensor, Tensor]:
        return self.keys, self.values


class _LayerCache:
    def __init__(self, past: _KeysAndValues, memory: _KeysAndValues) -> None:
        self.past, self.memory = past, memory


class _LayerCaches:
    def __init__(self, layers: list[_LayerCache]) -> None:
        self.layers = layers

    @property
    def length(self) -> int:
        return self.layers[0].past.length


class EncoderGraph(nn.Module):
    """The encoder, and the keys and values of each decoder layer's cross-attention.

    Source ids (B, S) and mask (B, S) -> for each decoder layer keys and values, (B, H, S, K) each.
    """

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, source: Tensor, source_mask: Tensor) -> tuple[Tensor, ...]:
        model = cast(Any, self.model)
        states = model.encode(source, source_mask).states
        outputs: list[Tensor] = []
        for i, layer in enumerate(model.decoder.layers):
            memory, cross = states[i if len(states) > 1 else 0], layer.cross_attention
            for linear in (cross.to_k, cross.to_v):
                heads = linear(memory).unflatten(-1, (cross.n_kv_heads, cross.d_head))
                outputs.append(heads.transpose(1, 2))
        return tuple(outputs)


class DecoderGraph(nn.Module):
    """One step of the decoder: tokens (B, 1) and the caches -> logits (B, V) and the new caches of each layer."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model
        self.n_layers = len(cast(Any, model).decoder.layers)

    def forward(
        self, tokens: Tensor, source_mask: Tensor, memory: Sequence[Tensor], past: Sequence[Tensor]
    ) -> tuple[Tensor, ...]:
        layers = [
            _LayerCache(
                _KeysAndValues(past[2 * i], past[2 * i + 1]),
                _KeysAndValues(memory[2 * i], memory[2 * i + 1]),
            )
            for i in range(self.n_layers)
        ]
        cache = _LayerCaches(layers)
        # The memory itself is not read, because its keys and values are given.
        nothing = memory[0].new_zeros(tokens.size(0), 1, 1)
        read = Memory([nothing], source_mask[:, None, None, :])
        logits: Tensor = cast(Any, self.model).decode(tokens, read, cache=cast("Cache", cache))
        kept = [part for layer in layers for part in layer.past.read()]
        return (logits[:, -1], *kept)


def names_of(prefix: str, n_layers: int) -> list[str]:
    return [f"{prefix}{part}_{i}" for i in range(n_layers) for part in ("key", "value")]


def _write_two(model: nn.Module, folder: Path) -> None:
    vocab_size = getattr(cast(Any, model).config, "vocab_size", None) or cast(Any, model).config.source_vocab_size
    decoder = DecoderGraph(model)
    n = decoder.n_layers
    source = (torch.arange(12) % vocab_size).view(2, 6)
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    axes = {0: "batch", 1: "source_length"}
    memory_axes = {0: "batch", 2: "source_length"}
    encoder = EncoderGraph(model)
    with torch.no_grad():
        memory = list(encoder(source, mask))
        first = cast(Any, model).decoder.layers[0].attention
        past = [torch.zeros(2, first.n_kv_heads, 3, first.d_head) for _ in range(2 * n)]
    _export(
        encoder,
        (source, mask),
        folder / ENCODER,
        inputs=["source", "source_mask"],
        outputs=names_of("memory_", n),
        axes={"source": axes, "source_mask": axes},
    )
    past_axes = {0: "batch", 2: "past_length"}
    _export(
        decoder,
        (source[:, :1], mask, memory, past),
        folder / DECODER,
        inputs=["tokens", "source_mask", *names_of("memory_", n), *names_of("past_", n)],
        outputs=["logits", *names_of("", n)],
        axes={
            "tokens": {0: "batch"},
            "source_mask": axes,
            "memory": [memory_axes] * (2 * n),
            "past": [past_axes] * (2 * n),
        },
    )


def _write_one(model: nn.Module, family: str, folder: Path) -> None:
    config, lengths = cast(Any, model).config, {0: "batch", 1: "length"}
    example: tuple[Tensor, ...]
    axes: dict[str, Any]
    if family == "vit":
        example = (torch.zeros(2, config.n_channels, config.image_size, config.image_size),)
        inputs, axes = ["pixels"], {"first": {0: "batch"}}
    else:
        example = ((torch.arange(12) % config.vocab_size).view(2, 6),)
        inputs, axes = ["ids"], {"first": lengths}
    if family == "bert":  # GPT needs no mask: padding is on the right, where causal attention does not reach
        example = (*example, torch.arange(6) < torch.tensor([[6], [4]]))
        inputs, axes = ["ids", "mask"], {"first": lengths, "second": lengths}
    _export(_Whole(model), example, folder / MODEL, inputs=inputs, outputs=["logits"], axes=axes)


class _Whole(nn.Module):
    """A model with one input, or with one input and its mask."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, first: Tensor, second: Tensor | None = None) -> Tensor:
        logits: Tensor = self.model(first) if second is None else self.model(first, second)
        return logits


def _export(
    graph: nn.Module,
    example: tuple[Any, ...],
    path: Path,
    *,
    inputs: list[str],
    outputs: list[str],
    axes: dict[str, Any],
) -> None:
    """Write one graph and compare the outputs of ONNX Runtime with those of torch."""
    with _silenced(), torch.no_grad():
        torch.onnx.export(
            graph,
            example,
            path,
            input_names=inputs,
            output_names=outputs,
            dynamic_shapes=axes,
            external_data=False,
            optimize=True,
            verbose=False,
        )
        outputs_of_torch = graph(*example)
    expected = [outputs_of_torch] if isinstance(outputs_of_torch, Tensor) else list(outputs_of_torch)
    _compare(path, inputs, example, expected)


@contextlib.contextmanager
def _silenced() -> Iterator[None]:
    """Silence the log messages and warnings of torch's exporter, which are about its own code."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _compare(path: Path, inputs: list[str], example: tuple[Any, ...], expected: list[Tensor]) -> None:
    import onnxruntime

    flat: list[Tensor] = []
    for item in example:
        flat += item if isinstance(item, list) else [item]
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    known = {entry.name for entry in session.get_inputs()}
    feeds = {name: tensor.numpy() for name, tensor in zip(inputs, flat, strict=True) if name in known}
    for name, output, tensor in zip(
        [entry.name for entry in session.get_outputs()], session.run(None, feeds), expected, strict=True
    ):
        difference = float((torch.from_numpy(output) - tensor).abs().max())
        if not difference <= TOLERANCE:
            raise UserError(f"{path.name}: ONNX Runtime's '{name}' differs by {difference:.1e} from torch's")


def _require_extra() -> None:
    for name in ("onnx", "onnxscript", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            raise MissingExtra("Writing ONNX graphs", "onnx")
