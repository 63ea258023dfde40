"""The step of a decoder-only model gives the model's own logits after rows were reordered, replaced or outgrown."""

from collections.abc import Sequence

import pytest
import torch

from deterministic import fill, largest_difference, whole_numbers
from heedful.decoding.search.continuous_batching import search
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.steps.fast_decoder_only import CosSin, FastDecoderOnlyStep
from heedful.models.gpt import Gpt, GptConfig, RotaryConfig
from heedful.text.special_ids import SpecialIds

SIZES = {"vocab_size": 17, "d_model": 16, "n_layers": 2, "n_heads": 4, "d_ff": 20, "max_len": 40}
LLAMA = {
    "positions": "rotary", "norm": "rms", "activation": "swiglu", "attention_bias": False, "feed_forward_bias": False,
    "n_kv_heads": 2, "d_head": 6, "tied": False, "rotary": RotaryConfig(base=1000.0, factor=2.0, original_max_len=16),
}  # fmt: skip
SHAPES = {"gpt2": {}, "llama": LLAMA, "none": {"positions": "none", "score_scale": "layer"}}


def make(shape: str, *, dtype: torch.dtype = torch.float64, **changes) -> Gpt:
    return fill(Gpt(GptConfig(**{**SIZES, **SHAPES[shape], **changes})), dtype=dtype)


def text(n: int, name: str = "") -> list[int]:
    return whole_numbers(n, below=17, name=f"{name}{n}").tolist()


class Rows:
    """A step, and beside it what each row has been fed, so that the model can be asked for the same."""

    def __init__(self, model: Gpt, prompts: Sequence[Sequence[int]], width: int = 1) -> None:
        self.model, self.width = model, width
        self.step = FastDecoderOnlyStep(model)
        self.fed = [list(prompt) for prompt in prompts for _ in range(width)]
        self.state = self.step.begin(prompts, width)
        self.begins = [True] * len(self.fed)
        self.n = 0

    def go(self) -> float:
        """Feed one token to each row; how far the logits are from the model's."""
        self.n += 1
        tokens = text(len(self.fed), name=f"step {self.n}")
        logits = self.step(torch.tensor(tokens), self.state)
        for row, token in enumerate(tokens):
            if not self.begins[row]:
                self.fed[row].append(token)
        self.begins = [False] * len(self.fed)
        worst = 0.0
        for row, ids in enumerate(self.fed):
            worst = max(worst, largest_difference(logits[row], self.model(torch.tensor([ids]))[0, -1]))
        return worst


@pytest.fixture(autouse=True)
def without_gradients():
    with torch.inference_mode():
        yield


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("lengths", [(5,), (1,), (1, 1), (3, 9, 1), (4, 4)])
def test_the_models_own_logits(shape: str, lengths: tuple[int, ...]) -> None:
    rows = Rows(make(shape), [text(n) for n in lengths])
    assert max(rows.go() for _ in range(12)) < 1e-12


@pytest.mark.parametrize("shape", SHAPES)
def test_rows_are_moved_kept_and_replaced(shape: str) -> None:
    rows = Rows(make(shape), [text(7), text(2), text(4)], width=2)
    assert max(rows.go() for _ in range(3)) < 1e-12
    moved = [1, 1, 2, 3, 5, 4]
    rows.state.reorder(torch.tensor(moved))
    rows.fed = [list(rows.fed[row]) for row in moved]
    assert rows.go() < 1e-12
    rows.state.keep(torch.tensor([0, 2]))
    rows.fed, rows.begins = rows.fed[:2] + rows.fed[4:], rows.begins[:4]
    assert rows.go() < 1e-12
    for place, new in ((1, text(3, "new")), (0, text(20, "long")), (1, text(1, "short"))):
        rows.step.replace(rows.state, torch.tensor([place]), [new])
        rows.fed[2 * place : 2 * place + 2] = [list(new), list(new)]
        rows.begins[2 * place : 2 * place + 2] = [True, True]
        assert max(rows.go() for _ in range(4)) < 1e-12


def test_many_columns_fall_off_the_front() -> None:
    """Replaced again and again, rows never need more room than their own texts."""
    rows = Rows(make("llama"), [text(3), text(3)])
    for round in range(12):
        place = round % 2
        new = text(2 + round % 5, name=str(round))
        rows.step.replace(rows.state, torch.tensor([place]), [new])
        rows.fed[place], rows.begins[place] = list(new), True
        assert max(rows.go() for _ in range(15)) < 1e-12
    assert rows.state.cache.tensors[0].size(0) <= 96


@pytest.mark.parametrize("shape", SHAPES)
def test_a_text_that_outgrows_the_window_is_read_again_from_its_last_half(shape: str) -> None:
    model = make(shape, max_len=8)
    step, prompts = FastDecoderOnlyStep(model), [text(6), text(2), text(11)]
    state = step.begin(prompts, 1)
    seen = [list(prompt)[-8:] for prompt in prompts]  # what the window holds
    for number in range(30):
        tokens = text(3, name=f"step {number}")
        logits = step(torch.tensor(tokens), state)
        for row, token in enumerate(tokens):
            if number:
                seen[row] = [*(seen[row] if len(seen[row]) < 8 else seen[row][-4:]), token]
            assert largest_difference(logits[row], model(torch.tensor([seen[row]]))[0, -1]) < 1e-12


def test_a_window_of_one_token() -> None:
    model = make("gpt2", max_len=1)
    step = FastDecoderOnlyStep(model)
    state = step.begin([[3], [5, 6]], 1)
    for fed, tokens in (([3, 6], [0, 0]), ([1, 2], [1, 2]), ([4, 4], [4, 4])):
        expected = model(torch.tensor(fed)[:, None])[:, -1]
        assert largest_difference(step(torch.tensor(tokens), state), expected) < 1e-12


def test_a_lane_keeps_its_positions_whatever_another_puts_there() -> None:
    class Outpaced(FastDecoderOnlyStep):
        """Another lane, which needs one position, is always the last to set the table."""

        @property
        def cos_sin(self) -> CosSin | None:  # type: ignore[override]
            return self._cos_sin

        @cos_sin.setter
        def cos_sin(self, table: CosSin | None) -> None:
            self._cos_sin = None if table is None else (table[0][:1], table[1][:1])

    rows = Rows(make("llama"), [text(7), text(2)])
    rows.step = Outpaced(rows.model)
    assert max(rows.go() for _ in range(8)) < 1e-12


def test_in_float32_the_packed_weights_give_the_same() -> None:
    rows = Rows(make("gpt2", dtype=torch.float32), [text(5), text(2)])
    assert max(rows.go() for _ in range(8)) < 1e-5


@pytest.mark.parametrize("beam", [1, 4])
def test_other_ends_stand_for_the_end_and_count_as_the_model_said_them(beam: int) -> None:
    model = make("gpt2", special_ids=SpecialIds(bos_id=2, eos_id=3, extra_eos_ids=(5, 9)))
    prompts = [text(1 + number % 5, name=f"ends {number}") for number in range(40)]
    settings = SearchSettings(beam=beam, max_len=8, length_penalty=0.0)
    found = search(FastDecoderOnlyStep(model), [Request(prompt) for prompt in prompts], settings)
    for prompt, [best] in zip(prompts, found, strict=True):
        assert not {3, 5, 9} & set(best.ids)
        said = model(torch.tensor([[*prompt, *best.ids]]))[0].log_softmax(dim=-1)[len(prompt) - 1 :]
        score = sum(float(said[place, id]) for place, id in enumerate(best.ids))
        score += float(said[-1, [3, 5, 9]].max()) if best.complete else 0.0
        assert best.score == pytest.approx(score, abs=1e-9)
        if beam == 1:  # it ends where any end is the likeliest of all, and nowhere else
            likeliest = said.argmax(dim=-1).tolist()
            assert likeliest[: len(best.ids)] == best.ids
            assert not best.complete or likeliest[len(best.ids)] in {3, 5, 9}
    assert sum(best.complete for [best] in found) > 3
