"""Helpers of the parity tests of encoder-decoders: inputs, comparisons, searches."""

import torch
from torch import Tensor, nn

from deterministic import largest_difference, whole_numbers
from heedful.data import pad_sources
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.interop.huggingface.checkpoint import MODEL_TYPES, rename_tensors
from heedful.interop.huggingface.tensor_map import write_tensors
from heedful.models.model_io import FAMILIES, weights_of

EXACT = {torch.float32: 1e-5, torch.float64: 1e-10}
LENGTHS = (9, 1, 5, 0)


def ours_from(theirs: nn.Module, kind: str, dtype: torch.dtype = torch.float32) -> nn.Module:
    """Return heedful's model with the settings and weights of a Hugging Face model."""
    model_type = MODEL_TYPES[kind]
    values = theirs.config.to_dict()
    config = model_type.config_from_hf(values, where="config.json")
    state = {name: tensor.clone() for name, tensor in theirs.state_dict().items()}
    config = model_type.infer_from_weights(config, state, where="config.json")
    model = FAMILIES[model_type.family][1](config).to(dtype)
    weights = rename_tensors(model_type, state, config, where="model.safetensors")
    assert set(weights) == set(weights_of(model))
    model.load_state_dict({name: tensor.to(dtype) for name, tensor in weights.items()}, strict=False)
    model.tie()
    return model.eval()


def shuffled(theirs: nn.Module, dtype: torch.dtype = torch.float32, *, seed: int = 7) -> nn.Module:
    """Every parameter of theirs set anew, so that no bias is zero and no norm the identity.

    Where and what matters to what is written, and it sometimes ends: else all searches would be alike.
    """
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if not parameter.requires_grad:
                continue  # Marian's sinusoids
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if parameter.dim() > 1:
                factor = 6.0 if "embed_positions" in name or "relative" in name else 1.5
                parameter.copy_(noise * factor * parameter.size(-1) ** -0.5)
            else:
                parameter.copy_(0.2 * noise + ("norm" in name and name.endswith("weight")))
            if name in ("shared.weight", "lm_head.weight", "model.shared.weight", "model.decoder.embed_tokens.weight"):
                parameter[theirs.config.eos_token_id] *= 2.0
        for name, buffer in theirs.named_buffers():
            if name == "final_logits_bias":
                buffer.copy_(torch.randn(buffer.shape, generator=generator) * 0.3)
                buffer[0, theirs.config.eos_token_id] += 1.0
    return theirs.to(dtype).eval()


def batch(vocab_size: int, *, pad: int, end: int, start: int, left: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    """Return sources of different lengths, padded on one side, their mask, and target prefixes."""
    width = max(LENGTHS) + 1
    source, mask = torch.full((len(LENGTHS), width), pad), torch.zeros(len(LENGTHS), width, dtype=torch.bool)
    for row, n in enumerate(LENGTHS):
        ids = torch.cat([whole_numbers(n, below=vocab_size - 4, first=4, name=f"s{n}"), torch.tensor([end])])
        place = slice(width - n - 1, width) if left else slice(0, n + 1)
        source[row, place], mask[row, place] = ids, True
    target = whole_numbers(len(LENGTHS), 7, below=vocab_size - 4, first=4, name="t")
    target[:, 0] = start
    return source, mask, target


def recorded_layers(model: nn.Module) -> dict[str, list[Tensor]]:
    """Return lists that collect the outputs of each layer of both sides in the next forward pass."""
    outputs: dict[str, list[Tensor]] = {"encoder": [], "decoder": []}
    for stack, found in outputs.items():
        for layer in getattr(model, stack).layers:
            layer.register_forward_hook(lambda module, given, output, found=found: found.append(output))
    return outputs


def same_outputs(theirs: nn.Module, ours: nn.Module, *, atol: float, left: bool = False) -> None:
    """Compare logits, memory and the output of each layer."""
    special_ids = ours.config.special_ids
    vocab_size = getattr(ours.config, "vocab_size", None) or ours.config.source_vocab_size
    source, mask, target = batch(
        vocab_size, pad=special_ids.pad_id, end=special_ids.eos_id, start=special_ids.start_id, left=left
    )
    with torch.no_grad():
        said = theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target, output_hidden_states=True)
        outputs = recorded_layers(ours)
        memory = ours.encode(source, mask)
        assert largest_difference(said.logits, ours.decode(target, memory)) < atol
        real = mask[..., None]
        for stack, hidden, counts in (
            ("encoder", said.encoder_hidden_states, real),
            ("decoder", said.decoder_hidden_states, torch.ones(1)),
        ):
            # Theirs begin with the embeddings; after the last layer some have its output, some that of a norm.
            for i, (layer, vectors) in enumerate(zip(outputs[stack][:-1], hidden[1:], strict=False)):
                assert largest_difference(layer * counts, vectors * counts) < atol, (stack, i)
        assert largest_difference(said.encoder_last_hidden_state * real, memory.states[-1] * real) < atol
        alone = said.encoder_last_hidden_state[:1]
        assert alone.abs().max() > 0.1, "something was computed"


def same_gradients(theirs: nn.Module, ours: nn.Module, kind: str, *, atol: float) -> None:
    """Compare the gradients of one loss. Hugging Face gives the embedding of padding no gradient."""
    special_ids = ours.config.special_ids
    vocab_size = getattr(ours.config, "vocab_size", None) or ours.config.source_vocab_size
    source, mask, target = batch(vocab_size, pad=special_ids.pad_id, end=special_ids.eos_id, start=special_ids.start_id)
    labels = target.roll(-1, dims=1)
    for logits in (
        theirs(input_ids=source, attention_mask=mask.long(), decoder_input_ids=target).logits,
        ours(source, target, mask),
    ):
        torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    gradients = {name: tensor.grad for name, tensor in ours.named_parameters()}
    written = write_tensors(MODEL_TYPES[kind].tensor_map(ours.config), gradients)
    for name, parameter in theirs.named_parameters():
        if parameter.grad is None:
            continue
        found = written[name].clone()
        if "shared" in name or "embed_tokens" in name:
            found[special_ids.pad_id], parameter.grad[special_ids.pad_id] = 0.0, 0.0
        if name.endswith("embed_positions.weight"):
            parameter.grad[: len(parameter.grad) - ours.config.max_len] = 0.0
        assert largest_difference(parameter.grad, found) < atol, name


N_INPUTS, SEEDS = 40, (1, 2, 3, 4, 5)  # 200 inputs: five models, since a random one tends to say few things


def same_searches_of_several(make, kind: str) -> None:
    """Compare the texts of `generate` and of heedful's searches, for models of five seeds."""
    said = [same_searches(theirs, ours_from(theirs, kind)) for theirs in map(make, SEEDS)]
    n_different, n_complete = (sum(counts) for counts in zip(*said, strict=True))
    n_searches = 2 * N_INPUTS * len(SEEDS)
    assert n_different > n_searches // 6, n_different
    assert n_searches // 10 < n_complete < n_searches - n_searches // 10, n_complete


def same_searches(theirs: nn.Module, ours: nn.Module, *, n_inputs: int = N_INPUTS) -> tuple[int, int]:
    """`generate` writes the same tokens, greedily and by beam, with its own stopping rule; how many texts were unlike,
    and how many came to an end.
    """
    n_different = n_complete = 0
    special_ids = ours.config.special_ids
    vocab_size = getattr(ours.config, "vocab_size", None) or ours.config.source_vocab_size
    lengths = [1 + (7 * i) % 13 for i in range(n_inputs)]
    rows = [whole_numbers(n, below=vocab_size - 4, first=4, name=f"g{i}").tolist() for i, n in enumerate(lengths)]
    source, mask = pad_sources([special_ids.with_source_bos(row) for row in rows], special_ids=special_ids)
    engine = TorchEngine(ours, lanes=1)
    for beam in (1, 4):
        settings = SearchSettings(beam=beam, max_len=12, stop="estimated", length_penalty=1.0)
        found = [best[0] for best in engine.search([Request(row) for row in rows], settings)]
        said = theirs.generate(
            source,
            attention_mask=mask.long(),
            num_beams=beam,
            do_sample=False,
            max_new_tokens=12 + special_ids.n_forced,
            early_stopping=False,
            length_penalty=1.0,
            forced_eos_token_id=None,
            forced_bos_token_id=special_ids.bos_id if special_ids.n_forced else None,
            bad_words_ids=[[number] for number in special_ids.forbidden_ids] or None,
            decoder_start_token_id=special_ids.start_id,
        )
        for row, best in zip(said.tolist(), found, strict=True):
            written = [special_ids.start_id, *special_ids.with_source_bos([])[: special_ids.n_forced], *best.ids]
            written += [special_ids.eos_id] if best.complete else []
            assert row[: len(written)] == written
            assert set(row[len(written) :]) <= {special_ids.pad_id, special_ids.eos_id}  # theirs fill up with either
            assert best.complete or len(row) == len(written)
        n_different += len({tuple(best.ids) for best in found})
        n_complete += sum(best.complete for best in found)
    return n_different, n_complete
