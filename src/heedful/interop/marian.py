"""heedful's Transformer as Hugging Face's MarianMTModel, and back: the same numbers under other names.

Marian's wiring is that of the 2017 paper: post-norm, sinusoidal positions, tied embeddings times sqrt(D). Its position
code has all sines first, then all cosines. The order of the D numbers between the parts means nothing as long as all
parts agree on it; so a model with the paper's own order, sine and cosine in turn, is exported by putting the D axis of
every weight into Marian's order, and computes the same.

Writing and reading need nothing of Hugging Face's.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from heedful.config import read_json
from heedful.errors import UserError
from heedful.files import folder_aside
from heedful.interop.marian_config import marian_config, seq2seq_config, why_not
from heedful.models.find import find_model_folder
from heedful.models.folder import CARD, CONFIG, WEIGHTS, load_model, read_weights, save_model, weights_of
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.nn.positions import sinusoidal_code
from heedful.text import SPECIAL_PIECES, SentencePieceTokenizer, Tokenizer, Tokenizers, load_tokenizer
from heedful.text.folder import SOURCE, TARGET
from heedful.text.safe import read_model

GENERATION, TOKENIZER, VOCABULARY, TARGET_VOCABULARY = (
    "generation_config.json",
    "tokenizer_config.json",
    "vocab.json",
    "target_vocab.json",
)
LOGITS_BIAS = "final_logits_bias"
POSITION_TABLES = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")


class Part(NamedTuple):
    ours: str
    theirs: str
    d_model: int  # the axis of its weight that has D numbers; a bias runs along axis 0 of its weight


# The one table: what stands in each layer, here and there.
ATTENTION = (
    Part("to_q", "q_proj", 1),
    Part("to_k", "k_proj", 1),
    Part("to_v", "v_proj", 1),
    Part("to_out", "out_proj", 0),
)
LAYER = (
    *(Part(f"attention.{part.ours}", f"self_attn.{part.theirs}", part.d_model) for part in ATTENTION),
    Part("attention_residual.norm", "self_attn_layer_norm", 0),
    Part("feed_forward.inner", "fc1", 1),
    Part("feed_forward.outer", "fc2", 0),
    Part("feed_forward_residual.norm", "final_layer_norm", 0),
)
CROSS = (
    *(Part(f"cross_attention.{part.ours}", f"encoder_attn.{part.theirs}", part.d_model) for part in ATTENTION),
    Part("cross_attention_residual.norm", "encoder_attn_layer_norm", 0),
)
# tied -> the matrices that the file has. Of one that is tied Hugging Face may write any of its names.
EMBEDDINGS: dict[str, dict[str, tuple[str, ...]]] = {
    "all": {
        "source_embedding.table.weight": (
            "model.shared.weight",
            "lm_head.weight",
            "model.encoder.embed_tokens.weight",
            "model.decoder.embed_tokens.weight",
        )
    },
    "target": {
        "source_embedding.table.weight": ("model.encoder.embed_tokens.weight",),
        "target_embedding.table.weight": ("model.decoder.embed_tokens.weight", "lm_head.weight"),
    },
    "none": {
        "source_embedding.table.weight": ("model.encoder.embed_tokens.weight",),
        "target_embedding.table.weight": ("model.decoder.embed_tokens.weight",),
        "head.linear.weight": ("lm_head.weight",),
    },
}


class Place(NamedTuple):
    """Where a tensor of ours is found there."""

    names: tuple[str, ...]  # the first is the one that is written
    d_model: int | None  # its axis of D numbers, if it has one


def places(config: Seq2SeqConfig) -> dict[str, Place]:
    """For each tensor of the model: its names there."""
    table = {ours: Place(names, 1) for ours, names in EMBEDDINGS[config.tied].items()}
    stacks = (
        ("encoder", config.n_layers, LAYER),
        ("decoder", config.n_decoder_layers or config.n_layers, LAYER + CROSS),
    )
    for stack, n_layers, parts in stacks:
        for i in range(n_layers):
            for part in parts:
                ours, theirs = f"{stack}.layers.{i}.{part.ours}", f"model.{stack}.layers.{i}.{part.theirs}"
                table[f"{ours}.weight"] = Place((f"{theirs}.weight",), part.d_model)
                table[f"{ours}.bias"] = Place((f"{theirs}.bias",), 0 if part.d_model == 0 else None)
    return table


def export_marian(model_folder: str | Path, output_folder: str | Path) -> Path:
    """Write a model folder (or a run's best model) as a folder for `MarianMTModel.from_pretrained`."""
    source, output = find_model_folder(model_folder), Path(output_folder)
    loaded = load_model(source)
    model = loaded.expect(Seq2Seq)
    reason = why_not(model.config)
    if reason is not None:
        raise UserError(f"{source}: cannot be written as a Marian model: {reason}")
    if loaded.tokenizers is None:
        raise UserError(f"{source}: has no tokenizer, and a Marian model needs one")
    with folder_aside(output) as aside:
        values = marian_config(model.config, precision=next(model.parameters()).dtype)
        _write_json(aside / CONFIG, values)
        _write_json(aside / GENERATION, _generation(values))
        save_file(marian_weights(model), aside / WEIGHTS, metadata={"format": "pt"})
        _write_tokenizers(aside, loaded.tokenizers, max_len=values["max_position_embeddings"])
        if (source / CARD).is_file():
            (aside / CARD).write_bytes((source / CARD).read_bytes())
    return output


def marian_weights(model: Seq2Seq) -> dict[str, Tensor]:
    """The model's tensors under Hugging Face's names, in Marian's order of the D numbers."""
    config, table = model.config, places(model.config)
    order = _halves_order(config.d_model) if config.positions == "sinusoidal" else None
    weights = {}
    for ours, tensor in weights_of(model).items():
        place, tensor = table[ours], tensor.detach()
        if order is not None and place.d_model is not None:
            tensor = tensor.index_select(place.d_model, order)
        weights[place.names[0]] = tensor.contiguous()
    weights[LOGITS_BIAS] = next(iter(weights.values())).new_zeros(1, config.target_vocab_size)
    return weights


def import_marian(folder: str | Path, output_folder: str | Path) -> Path:
    """Read a folder such as `export_marian` writes, or Hugging Face saves of it, into a model folder.

    Its tokenizer must be one of heedful's kind: pad 0, unknown 1, start 2, end 3, and the ids those of its
    SentencePiece model.
    """
    folder = Path(folder)
    config = seq2seq_config(read_json(folder / CONFIG), where=str(folder / CONFIG))
    tokenizers = _read_tokenizers(folder, config)
    with torch.device("meta"):
        model = Seq2Seq(config)
    model.load_state_dict(_read_weights(folder / WEIGHTS, model), strict=False, assign=True)
    model.tie()
    card = (folder / CARD).read_text(encoding="utf-8") if (folder / CARD).is_file() else ""
    return save_model(output_folder, model.eval(), tokenizers, card=card)


def _halves_order(d_model: int) -> Tensor:
    """Sines and cosines in turn -> all sines, then all cosines."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])


def _generation(values: Mapping[str, Any]) -> dict[str, Any]:
    """How Hugging Face searches by default: as heedful does."""
    ids = {name: values[name] for name in ("bos_token_id", "decoder_start_token_id", "eos_token_id", "pad_token_id")}
    return {**ids, "max_length": min(512, values["max_position_embeddings"]), "num_beams": 5, "length_penalty": 1.0}


def _write_json(path: Path, values: object) -> None:
    path.write_text(json.dumps(values, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def _write_tokenizers(folder: Path, tokenizers: Tokenizers, *, max_len: int) -> None:
    files = [(SOURCE, VOCABULARY, tokenizers.source), (TARGET, TARGET_VOCABULARY, tokenizers.target)]
    for spm, vocabulary, tokenizer in files:
        tokenizer.save(folder / spm)
        if vocabulary == VOCABULARY or not tokenizers.joint:
            _write_json(folder / vocabulary, {piece: number for number, piece in enumerate(_pieces(tokenizer))})
    pad, unknown, start, end = SPECIAL_PIECES
    values = {
        "tokenizer_class": "MarianTokenizer",
        "separate_vocabs": not tokenizers.joint,
        "model_max_length": max_len,
        "pad_token": pad,
        "unk_token": unknown,
        "bos_token": start,
        "eos_token": end,
    }
    _write_json(folder / TOKENIZER, values)


def _pieces(tokenizer: Tokenizer) -> list[str]:
    """The pieces as SentencePiece spells them."""
    if not isinstance(tokenizer, SentencePieceTokenizer):
        raise UserError("only a SentencePiece tokenizer can be written for Marian")
    return read_model(tokenizer.model, where="tokenizer").pieces


def _read_tokenizers(folder: Path, config: Seq2SeqConfig) -> Tokenizers:
    source, target = load_tokenizer(folder / SOURCE), load_tokenizer(folder / TARGET)
    if source.model == target.model:
        target = source
    separate = (folder / TARGET_VOCABULARY).is_file()
    for tokenizer, name in ((source, VOCABULARY), (target, TARGET_VOCABULARY if separate else VOCABULARY)):
        if read_json(folder / name) != {piece: number for number, piece in enumerate(_pieces(tokenizer))}:
            raise UserError(
                f"{folder / name}: its ids are not those of the SentencePiece model, as in the public OPUS-MT models; "
                "such a vocabulary cannot be read yet"
            )
    sizes = (source.vocab_size, target.vocab_size)
    if sizes != (config.source_vocab_size, config.target_vocab_size):
        raise UserError(f"{folder}: the tokenizers have {sizes[0]:,} and {sizes[1]:,} pieces, {CONFIG} says otherwise")
    return Tokenizers(source=source, target=target)


def _read_weights(path: Path, model: Seq2Seq) -> dict[str, Tensor]:
    """The tensors under our names; whatever else the file may hold must say what Marian says by itself."""
    try:
        with safe_open(path, framework="pt") as file:
            names = list(file.keys())
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
    except (SafetensorError, OSError, ValueError) as error:
        raise UserError(f"{path}: not a readable safetensors file: {error}") from None
    config, ours = model.config, weights_of(model)
    expected: dict[str, Tensor] = {}
    of: dict[str, str] = {}
    for name, place in places(config).items():
        found = [there for there in place.names if there in shapes] or [place.names[0]]
        of[name] = found[0]
        expected |= dict.fromkeys(found, ours[name])
    if LOGITS_BIAS in shapes:
        expected[LOGITS_BIAS] = torch.empty(1, config.target_vocab_size, device="meta")
    for table in POSITION_TABLES:
        if table in shapes:
            expected[table] = torch.empty(shapes[table][0], config.d_model, device="meta")
    read = read_weights(path, expected=expected, device="cpu")
    _check_implied(path, read, of, config)
    return {name: read[there] for name, there in of.items()}


def _check_implied(path: Path, read: Mapping[str, Tensor], of: Mapping[str, str], config: Seq2SeqConfig) -> None:
    """A bias of the logits, positions that are not sinusoids and tied matrices that differ have no place here."""
    if LOGITS_BIAS in read and read[LOGITS_BIAS].any():
        raise UserError(f"{path}: '{LOGITS_BIAS}' is not zero: heedful's models have no bias there")
    for table in POSITION_TABLES:
        if table in read:
            wanted = sinusoidal_code(torch.arange(len(read[table])), config.d_model, layout="halves")
            if (read[table].double() - wanted).abs().max() > 1e-3:
                raise UserError(f"{path}: '{table}' holds other positions than Marian's sinusoids")
    for name, place in places(config).items():
        for there in place.names:
            if there in read and not torch.equal(read[there], read[of[name]]):
                raise UserError(f"{path}: '{there}' and '{of[name]}' should be one matrix, and differ")
