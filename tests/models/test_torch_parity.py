"""The same weights in torch.nn.Transformer give the same output: a foreign implementation of the same paper."""

import pytest
import torch
from torch import Tensor, nn

from deterministic import fill, largest_difference, numbers, whole_numbers
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.nn.positions import sinusoidal_code

D_MODEL, N_HEADS, N_LAYERS, D_FF, VOCAB = 12, 3, 2, 20, 17


def theirs_from(ours: Seq2Seq) -> nn.Transformer:
    config = ours.config
    model = nn.Transformer(
        config.d_model,
        config.n_heads,
        config.n_layers,
        config.n_decoder_layers or config.n_layers,
        config.d_ff,
        activation=config.activation,
        norm_first=config.residual == "pre",
        batch_first=True,
    ).double()
    for own, layer in zip(ours.encoder.layers, model.encoder.layers, strict=True):
        copy_attention(own.attention, layer.self_attn)
        copy_networks(own, layer)
        copy(own.attention_residual.norm, layer.norm1)
        copy(own.feed_forward_residual.norm, layer.norm2)
    for own, layer in zip(ours.decoder.layers, model.decoder.layers, strict=True):
        copy_attention(own.attention, layer.self_attn)
        copy_attention(own.cross_attention, layer.multihead_attn)
        copy_networks(own, layer)
        copy(own.attention_residual.norm, layer.norm1)
        copy(own.cross_attention_residual.norm, layer.norm2)
        copy(own.feed_forward_residual.norm, layer.norm3)
    if config.residual == "pre":
        copy(ours.encoder.final_norm, model.encoder.norm)
        copy(ours.decoder.final_norm, model.decoder.norm)
    else:  # PyTorch ends with a norm in any case; the paper's model has none there
        model.encoder.norm = model.decoder.norm = None
    return model.eval()


def copy_attention(ours: nn.Module, theirs: nn.MultiheadAttention) -> None:
    parts = (ours.to_q, ours.to_k, ours.to_v)
    with torch.no_grad():
        theirs.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    copy(ours.to_out, theirs.out_proj)


def copy_networks(ours: nn.Module, theirs: nn.Module) -> None:
    copy(ours.feed_forward.inner, theirs.linear1)
    copy(ours.feed_forward.outer, theirs.linear2)


def copy(ours: nn.Module, theirs: nn.Module) -> None:
    theirs.load_state_dict(ours.state_dict())


def run_theirs(model: nn.Transformer, ours: Seq2Seq, source: Tensor, target: Tensor, real: Tensor | None) -> Tensor:
    def embedded(embedding, ids):
        return embedding(ids) + sinusoidal_code(torch.arange(ids.size(1)), D_MODEL)

    hidden = None if real is None else ~real  # theirs: True = may not attend
    out = model(
        embedded(ours.source_embedding, source),
        embedded(ours.target_embedding, target),
        tgt_mask=torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1),
        src_key_padding_mask=hidden,
        memory_key_padding_mask=hidden,
    )
    return out @ ours.head.linear.weight.T


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")
@pytest.mark.parametrize("residual", ["post", "pre"])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("n_decoder_layers", [None, 1])
def test_same_weights_same_output_same_gradients(residual, activation, padded, n_decoder_layers):
    config = Seq2SeqConfig(
        source_vocab_size=VOCAB,
        target_vocab_size=VOCAB,
        d_model=D_MODEL,
        n_heads=N_HEADS,
        n_layers=N_LAYERS,
        n_decoder_layers=n_decoder_layers,
        d_ff=D_FF,
        residual=residual,
        activation=activation,
    )
    ours = fill(Seq2Seq(config))
    theirs = theirs_from(ours)
    source, target = whole_numbers(3, 7, below=VOCAB, name="s"), whole_numbers(3, 5, below=VOCAB, name="t")
    real = torch.arange(7)[None] < torch.tensor([[7], [3], [5]]) if padded else None

    found = ours(source, target, real)
    wanted = run_theirs(theirs, ours, source, target, real)
    assert largest_difference(found, wanted) < 1e-10

    downstream = numbers(*found.shape, name="downstream")
    pairs = [
        (ours.encoder.layers[0].feed_forward.inner.weight, theirs.encoder.layers[0].linear1.weight),
        (ours.encoder.layers[-1].attention.to_out.weight, theirs.encoder.layers[-1].self_attn.out_proj.weight),
        (ours.decoder.layers[0].cross_attention.to_out.bias, theirs.decoder.layers[0].multihead_attn.out_proj.bias),
        (ours.decoder.layers[-1].attention_residual.norm.weight, theirs.decoder.layers[-1].norm1.weight),
    ]
    own = torch.autograd.grad(found, [a for a, _ in pairs], downstream, retain_graph=True)
    other = torch.autograd.grad(wanted, [b for _, b in pairs], downstream)
    for a, b in zip(own, other, strict=True):
        assert largest_difference(a, b) < 1e-9
