"""heedful's decoder-only models equal Hugging Face's GPT-2 and Llama: outputs and texts, in both directions."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch import Tensor

from deterministic import fill, largest_difference, whole_numbers
from heedful.decoding.generator import Generator
from heedful.errors import UserError
from heedful.interop.huggingface.checkpoint import MODEL_TYPES, export_huggingface, import_huggingface, rename_tensors
from heedful.interop.huggingface.tensor_map import write_tensors
from heedful.models.gpt import Gpt, GptConfig, RotaryConfig
from heedful.models.model_io import load_model, save_model, weights_of
from heedful.text.special_ids import SpecialIds

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")

GPT2 = {
    "vocab_size": 61,
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 4,
    "n_positions": 48,
    "bos_token_id": 2,
    "eos_token_id": 3,
}
LLAMA = {
    "vocab_size": 61, "hidden_size": 24, "num_hidden_layers": 3, "num_attention_heads": 4, "intermediate_size": 40,
    "max_position_embeddings": 48, "bos_token_id": 2, "eos_token_id": 3,
}  # fmt: skip
LLAMA3 = {
    "rope_type": "llama3", "rope_theta": 1000.0, "factor": 4.0, "original_max_position_embeddings": 16,
    "low_freq_factor": 1.0, "high_freq_factor": 4.0,
}  # fmt: skip
# name -> (their kind, their switches)
CASES = {
    "gpt2": ("gpt2", {}),
    "gpt2, not tied": ("gpt2", {"tie_word_embeddings": False}),
    "gpt2, its own d_ff, eps": ("gpt2", {"n_inner": 36, "layer_norm_epsilon": 1e-3}),
    "gpt2, gelu": ("gpt2", {"activation_function": "gelu"}),
    "gpt2, gelu_fast": ("gpt2", {"activation_function": "gelu_fast"}),
    "gpt2, relu": ("gpt2", {"activation_function": "relu"}),
    "gpt2, silu": ("gpt2", {"activation_function": "silu"}),
    "gpt2, scaled by layer": ("gpt2", {"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True}),
    "gpt2, scaled by layer alone": ("gpt2", {"scale_attn_by_inverse_layer_idx": True, "scale_attn_weights": False}),
    "gpt2, not scaled": ("gpt2", {"scale_attn_weights": False}),
    "llama": ("llama", {}),
    "llama, grouped heads": ("llama", {"num_key_value_heads": 2}),
    "llama, one key head, tied": ("llama", {"num_key_value_heads": 1, "tie_word_embeddings": True}),
    "llama, biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama, attention biases": ("llama", {"attention_bias": True, "rms_norm_eps": 1e-3}),
    "llama, its own d_head, gelu": ("llama", {"head_dim": 10, "hidden_act": "gelu_pytorch_tanh"}),
    "llama, theta": ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}),
    "llama 3": ("llama", {"rope_parameters": LLAMA3, "num_key_value_heads": 2}),
    "llama, linear": ("llama", {"rope_parameters": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 3.0}}),
}
KINDS = {
    "gpt2": (transformers.GPT2Config, transformers.GPT2LMHeadModel, GPT2),
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM, LLAMA),
}


def reference(case: str, *, dtype: torch.dtype = torch.float32):
    """Return a Hugging Face model whose parameters all have distinct values, also biases and norms."""
    kind, switches = CASES[case]
    settings, module, sizes = KINDS[kind]
    theirs = module(settings(**{**sizes, **switches}))
    buffers = {name: buffer.clone() for name, buffer in theirs.named_buffers()}
    fill(theirs, dtype=dtype)
    for name, buffer in theirs.named_buffers():  # the wavelengths follow from the settings
        buffer.copy_(buffers[name])
    return theirs


def converted(theirs) -> Gpt:
    """Return heedful's model with the settings and tensors of a Hugging Face model."""
    kind = theirs.config.model_type
    values = json.loads(theirs.config.to_json_string(use_diff=False))
    family = MODEL_TYPES[kind]
    ours = Gpt(family.config_from_hf(values, where="config.json"))
    ours.load_state_dict(rename_tensors(family, theirs.state_dict(), ours.config, where=""), strict=False, assign=True)
    ours.tie()
    return ours.eval()


def ids_of(*shape: int, name: str = "ids") -> Tensor:
    return whole_numbers(*shape, below=61, first=4, name=name)


def in_double(theirs, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let their norm and rotary positions compute in float64; they use float32 for any dtype of the model."""
    if theirs.config.model_type != "llama":
        return
    from transformers.models.llama import modeling_llama

    def norm(self, x):
        return self.weight * x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.variance_epsilon)

    def waves(self, x, position_ids):
        ours = converted(theirs).layers[0].attention.rotary
        cos, sin = ours.cos_sin(position_ids, torch.float64)
        return torch.cat([cos, cos], dim=-1).squeeze(1), torch.cat([sin, sin], dim=-1).squeeze(1)

    monkeypatch.setattr(modeling_llama.LlamaRMSNorm, "forward", norm)
    monkeypatch.setattr(modeling_llama.LlamaRotaryEmbedding, "forward", waves)


def hidden_of(model: Gpt, ids: Tensor, mask: Tensor | None = None) -> tuple[list[Tensor], Tensor]:
    """Return hidden states as Hugging Face does: before the first layer, between layers, after the final norm."""
    seen: list[Tensor] = []
    handles = [
        layer.register_forward_pre_hook(lambda _, given, __: seen.append(given[0]), with_kwargs=True)
        for layer in model.layers
    ]
    states = model.hidden_states(ids, mask)
    for handle in handles:
        handle.remove()
    return [*seen, states], model.head(states)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
def test_logits_hidden_states_and_gradients(case: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = reference(case, dtype=dtype)
    ours, largest = converted(theirs), 1e-5 if dtype == torch.float32 else 1e-10
    if dtype == torch.float64:
        in_double(theirs, monkeypatch)
    ids = ids_of(3, 40)
    there = theirs(input_ids=ids, output_hidden_states=True)
    hidden, logits = hidden_of(ours, ids)
    assert len(hidden) == len(there.hidden_states)
    for one, other in zip(hidden, there.hidden_states, strict=True):
        assert largest_difference(one, other) < largest
    assert largest_difference(logits, there.logits) < largest
    goal = torch.sin(torch.arange(logits.numel(), dtype=dtype)).view(logits.shape) / logits.numel()
    (there.logits * goal).sum().backward()
    (logits * goal).sum().backward()
    of_theirs = {name: one.grad for name, one in theirs.named_parameters()}
    of_ours = write_tensors(
        MODEL_TYPES[theirs.config.model_type].tensor_map(ours.config),
        {name: one.grad for name, one in ours.named_parameters()},
    )
    assert set(of_ours) == set(of_theirs)
    for name, grad in of_theirs.items():
        assert largest_difference(of_ours[name], grad) < largest, name


@pytest.mark.parametrize("case", ["gpt2", "llama 3", "llama, one key head, tied"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_padded_rows(case: str, side: str) -> None:
    theirs = reference(case)
    ours, ids, lengths = converted(theirs), ids_of(3, 20), torch.tensor([20, 7, 1])
    columns = torch.arange(20)
    mask = (columns >= 20 - lengths[:, None]) if side == "left" else (columns < lengths[:, None])
    positions = (mask.cumsum(dim=1) - 1).clamp(min=0)
    with torch.no_grad():
        there = theirs(input_ids=ids, attention_mask=mask.long(), position_ids=positions).logits
        assert largest_difference(ours(ids, mask)[mask], there[mask]) < 1e-5


PROMPTS = [ids_of(1 + n % 7, name=str(n)).tolist() for n in range(200)]


@pytest.mark.parametrize("case", ["gpt2, not tied", "llama 3"])
def test_greedy_texts_are_equal(case: str) -> None:
    theirs = reference(case)
    ours = converted(theirs)
    [[first]] = Generator(ours, None).search_ids(PROMPTS[:1], max_len=12)
    end = first.ids[6]  # a token that some texts come to
    theirs.generation_config.eos_token_id = end
    ours.config = dataclasses.replace(ours.config, special_ids=SpecialIds(bos_id=2, eos_id=end))
    found = Generator(ours, None).search_ids(PROMPTS, max_len=12)
    n_complete = 0
    for prompt, best in zip(PROMPTS, found, strict=True):
        there = theirs.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0)
        expected = there[0, len(prompt) :].tolist()
        assert best[0].ids == expected[: expected.index(end) if end in expected else None], prompt
        assert best[0].complete == (end in expected)
        n_complete += best[0].complete
    assert 0 < n_complete < 200  # both ends are tried


def test_greedy_texts_of_a_padded_batch_are_equal() -> None:
    theirs = reference("llama, grouped heads")
    prompts = PROMPTS[:40]
    width = max(map(len, prompts))
    ids = torch.tensor([[0] * (width - len(prompt)) + prompt for prompt in prompts])
    mask = torch.tensor([[0] * (width - len(prompt)) + [1] * len(prompt) for prompt in prompts])
    there = theirs.generate(ids, attention_mask=mask, max_new_tokens=12, do_sample=False, pad_token_id=0)
    found = Generator(converted(theirs), None).search_ids(prompts, max_len=12)
    for row, best in zip(there, found, strict=True):
        assert best[0].ids == [id for id in row[width:].tolist() if id not in (0, 3)]


@pytest.mark.parametrize("case", ["gpt2, not tied", "llama 3"])
@pytest.mark.parametrize(("length_penalty", "early"), [(1.0, True), (0.6, False)])
@pytest.mark.parametrize("n_prompts", [50, pytest.param(200, marks=pytest.mark.long)])
def test_beams_are_equal(n_prompts: int, case: str, length_penalty: float, early: bool) -> None:
    """If texts differ, theirs must not score better: a near-tie can be rounded either way."""
    theirs = reference(case, dtype=torch.float64)
    stop = "patience" if early else "estimated"
    generator = Generator(converted(theirs), None)
    prompts = PROMPTS[:n_prompts]
    found = generator.search_ids(prompts, max_len=10, beam=4, length_penalty=length_penalty, stop=stop)
    how = {"num_beams": 4, "do_sample": False, "pad_token_id": 0, "length_penalty": length_penalty}
    for prompt, best in zip(prompts, found, strict=True):
        there = theirs.generate(torch.tensor([prompt]), max_new_tokens=10, early_stopping=early, **how)
        assert best[0].ids == [id for id in there[0, len(prompt) :].tolist() if id != 3], prompt


@pytest.mark.parametrize("case", CASES)
def test_a_folder_there_and_back_is_the_same_to_the_bit(case: str, tmp_path: Path) -> None:
    theirs = reference(case)
    theirs.save_pretrained(tmp_path / "theirs")
    with pytest.warns(UserWarning, match="tokenizer"):
        import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    ours = load_model(tmp_path / "ours").model
    with pytest.warns(UserWarning, match="tokenizer"):
        export_huggingface(tmp_path / "ours", tmp_path / "again")
    again, information = type(theirs).from_pretrained(tmp_path / "again", output_loading_info=True)
    assert not any(information[problem] for problem in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    ids = ids_of(2, 30)
    with torch.no_grad():
        assert largest_difference(ours(ids), theirs(input_ids=ids).logits) < 1e-5
        largest = 1e-6 if "gelu_fast" in case else 0.0  # another name there for what is one here, rounded otherwise
        assert largest_difference(again.eval()(input_ids=ids).logits, theirs(input_ids=ids).logits) <= largest
    with pytest.warns(UserWarning, match="tokenizer"):
        import_huggingface(tmp_path / "again", tmp_path / "back")
    back = load_model(tmp_path / "back").model
    assert back.config == ours.config
    for name, tensor in weights_of(ours).items():
        assert torch.equal(tensor, weights_of(back)[name]), name


OURS = {
    "gpt2": {},
    "untied": {"tied": False, "activation": "relu", "score_scale": "head_and_layer"},
    "llama": {
        "positions": "rotary", "norm": "rms", "activation": "swiglu", "attention_bias": False, "tied": False,
        "feed_forward_bias": False, "n_kv_heads": 2,
        "rotary": RotaryConfig(base=5000.0, factor=2.0, original_max_len=9),
        "special_ids": SpecialIds(unk_id=3, bos_id=2, eos_id=3, extra_eos_ids=(7, 8)),
    },
}  # fmt: skip


@pytest.mark.parametrize("case", OURS)
def test_a_model_of_ours_comes_back_to_the_bit(case: str, tmp_path: Path) -> None:
    config = GptConfig(vocab_size=61, d_model=24, n_layers=2, n_heads=4, d_ff=36, max_len=40, **OURS[case])
    model = fill(Gpt(config), dtype=torch.float32)
    save_model(tmp_path / "model", model, None, card="# A card\n")
    with pytest.warns(UserWarning, match="tokenizer"):
        export_huggingface(tmp_path / "model", tmp_path / "theirs")
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "theirs").eval()
    with torch.no_grad():
        assert largest_difference(theirs(input_ids=ids_of(2, 30)).logits, model(ids_of(2, 30))) < 1e-5
    assert theirs.generation_config.eos_token_id == ([3, 7, 8] if case == "llama" else 3)
    with pytest.warns(UserWarning, match="tokenizer"):
        import_huggingface(tmp_path / "theirs", tmp_path / "back")
    back = load_model(tmp_path / "back").model
    assert torch.equal(back(ids_of(2, 30)), model(ids_of(2, 30)))
    for name, tensor in weights_of(model).items():
        assert torch.equal(tensor, weights_of(back)[name]), name


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
def test_an_eos_id_beyond_the_embedding_is_left_out(tmp_path: Path) -> None:
    """config.json can have GPT-2's 50256 with a smaller vocabulary, and generation_config.json the real EOS."""
    theirs = reference("gpt2")
    theirs.config.eos_token_id, theirs.generation_config.eos_token_id = 50256, 7
    theirs.save_pretrained(tmp_path / "theirs")
    ours = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    special_ids = load_model(ours).model.config.special_ids
    assert (special_ids.eos_id, special_ids.extra_eos_ids) == (7, ())
    prompt = ids_of(1, 5)
    wanted = theirs.generate(prompt, max_new_tokens=20, do_sample=False, pad_token_id=0)[0, 5:].tolist()
    [[found]] = Generator.load(ours, engine="torch").search_ids(prompt.tolist(), max_len=20)
    assert found.ids == [token for token in wanted if token != 7]


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
def test_float16_goes_there_and_back_as_it_is(tmp_path: Path) -> None:
    """A CPU computes in float32; the file keeps float16."""
    theirs = reference("gpt2")
    theirs.half().save_pretrained(tmp_path / "theirs")
    ours = import_huggingface(tmp_path / "theirs", tmp_path / "ours")
    again = transformers.AutoModelForCausalLM.from_pretrained(
        export_huggingface(ours, tmp_path / "again"), dtype="auto"
    )
    assert all(torch.equal(tensor, theirs.state_dict()[name]) for name, tensor in again.state_dict().items())
    with torch.no_grad():
        wanted = theirs.float()(input_ids=ids_of(2, 30)).logits
        assert largest_difference(load_model(ours).model(ids_of(2, 30)), wanted) < 1e-5


def test_files_of_older_versions_are_read(tmp_path: Path) -> None:
    """GPT-2's own file has no prefix and contains masks; Llama's first files contain inverse frequencies."""
    theirs = reference("gpt2")
    family, ours = MODEL_TYPES["gpt2"], converted(theirs)
    old = {name.removeprefix("transformer."): tensor for name, tensor in theirs.state_dict().items()}
    del old["lm_head.weight"]
    old |= {"h.0.attn.bias": torch.ones(1, 1, 48, 48).tril(), "h.0.attn.masked_bias": torch.tensor(-1e4)}
    read = rename_tensors(family, old, ours.config, where="")
    assert all(torch.equal(read[name], tensor) for name, tensor in weights_of(ours).items())
    theirs = reference("llama")
    old = dict(theirs.state_dict()) | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(3)}
    ours = converted(theirs)
    assert set(rename_tensors(MODEL_TYPES["llama"], old, ours.config, where="")) == set(weights_of(ours))


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
@pytest.mark.parametrize("case", ["gpt2", "llama, one key head, tied"])
def test_a_base_model_with_tied_output_is_read(case: str, tmp_path: Path) -> None:
    theirs = reference(case)
    theirs.base_model.save_pretrained(tmp_path / "theirs")
    read = load_model(import_huggingface(tmp_path / "theirs", tmp_path / "ours")).model
    assert all(torch.equal(weights_of(read)[name], tensor) for name, tensor in weights_of(converted(theirs)).items())


@pytest.mark.parametrize("case", ["gpt2, not tied", "llama"])
def test_a_base_model_without_its_output_layer_is_refused(case: str, tmp_path: Path) -> None:
    reference(case).base_model.save_pretrained(tmp_path / "theirs")
    with pytest.raises(UserError, match=r"theirs: has no 'lm_head\.weight'.* Save it with its head"):
        import_huggingface(tmp_path / "theirs", tmp_path / "ours")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"model_type": "gpt2", "add_cross_attention": True}, "'add_cross_attention' is True"),
        ({"model_type": "gpt2", "activation_function": "tanh"}, "'activation_function' must be one of"),
        ({"model_type": "gpt2", "n_embd": "768"}, "'n_embd' must be a whole number"),
        (
            {"model_type": "gpt2", "architectures": ["GPT2ForSequenceClassification"]},
            "'architectures' is .*GPT2LM",
        ),
        ({"model_type": "llama", "architectures": ["LlamaForSequenceClassification"]}, "'architectures' is .*LlamaFor"),
        ({"model_type": "llama", "rope_scaling": {"rope_type": "yarn", "factor": 2.0}}, "'rope_type' is 'yarn'"),
        ({"model_type": "llama", "partial_rotary_factor": 0.5}, "'partial_rotary_factor'"),
        ({"model_type": "llama", "hidden_act": "relu"}, "'hidden_act' must be one of"),
        ({"model_type": "llama", "eos_token_id": ["</s>"]}, "'eos_token_id' must be"),
    ],
)
def test_unsupported_settings_are_refused_by_name(values: dict[str, object], words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        MODEL_TYPES[values["model_type"]].config_from_hf(values, where="some/config.json")
    assert "some/config.json" in str(caught.value)


def test_rotary_settings_of_transformers_4_are_read() -> None:
    old = {
        "rope_theta": 500_000.0,
        "rope_scaling": {name: value for name, value in LLAMA3.items() if name != "rope_theta"},
    }
    read = MODEL_TYPES["llama"].config_from_hf({**LLAMA, **old}, where="").rotary
    assert read == RotaryConfig(
        base=500_000.0, factor=4.0, original_max_len=16, low_freq_factor=1.0, high_freq_factor=4.0
    )
    kind = {"type": "linear", "factor": 2.0}
    assert MODEL_TYPES["llama"].config_from_hf({**LLAMA, "rope_scaling": kind}, where="").rotary == RotaryConfig(
        factor=2.0
    )


@pytest.mark.parametrize(
    ("changes", "of_gpt2", "of_llama"),
    [
        ({}, None, "positions = 'learned'"),
        ({"positions": "none"}, "positions = 'none'", "positions = 'none'"),
        ({"norm": "rms"}, "norm = 'rms'", "positions"),
        ({"activation": "swiglu"}, "activation = 'swiglu'", "positions"),
        ({"n_kv_heads": 2}, "n_kv_heads", "positions"),
        ({"d_head": 8}, "d_head = 8", "positions"),
        ({"attention_bias": False}, "attention_bias", "positions"),
        ({**OURS["llama"], "score_scale": "none"}, "positions", "score_scale = 'none'"),
        ({**OURS["llama"], "norm": "layer"}, "positions", "norm = 'layer'"),
        ({**OURS["llama"], "activation": "gelu"}, "positions", "activation = 'gelu'"),
    ],
)
def test_models_that_gpt2_or_llama_cannot_compute_are_refused_with_the_reason(changes, of_gpt2, of_llama) -> None:
    config = GptConfig(**{"vocab_size": 61, "d_model": 24, "n_layers": 1, "n_heads": 4, "d_ff": 36, **changes})
    for kind, reason in (("gpt2", of_gpt2), ("llama", of_llama)):
        config_to = MODEL_TYPES[kind].config_to_hf
        if reason is None:
            assert config_to(config)["architectures"]
        else:
            with pytest.raises(UserError, match=reason):
                config_to(config)


def test_every_setting_survives_the_way_there_and_back() -> None:
    """A setting that one direction forgets would come back as its default."""
    base = {"vocab_size": 61, "d_model": 24, "n_layers": 2, "n_heads": 4, "d_ff": 36, "max_len": 40, "norm_eps": 1e-4}
    odd = {
        **base,
        "dropout": 0.2,
        "attention_dropout": 0.3,
        "tied": False,
        "activation": "gelu",
        "score_scale": "layer",
    }
    config = GptConfig(**odd, special_ids=SpecialIds(unk_id=6, bos_id=5, eos_id=6, extra_eos_ids=(9,)))
    assert MODEL_TYPES["gpt2"].config_from_hf(MODEL_TYPES["gpt2"].config_to_hf(config), where="") == config
    config = GptConfig(**{**base, **OURS["llama"], "dropout": 0.0, "attention_dropout": 0.3, "d_head": 10})
    assert MODEL_TYPES["llama"].config_from_hf(MODEL_TYPES["llama"].config_to_hf(config), where="") == config
    assert dataclasses.replace(config, d_head=None) != config
