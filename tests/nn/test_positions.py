"""Positions: each scheme against its formula, written out number by number."""

import math

import pytest
import torch

from deterministic import fill, largest_difference, numbers
from heedful.nn.embeddings import one_hot
from heedful.nn.positions import Alibi, Learned, NoPositions, RelativeBias, Rotary, Sinusoidal, sinusoidal_code

# Sinusoids


def paper(position: int, d_model: int, *, base: float = 10_000.0) -> list[float]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos of the same (section 3.5)."""
    code = [0.0] * d_model
    for i in range(d_model // 2):
        angle = position / base ** (2 * i / d_model)
        code[2 * i], code[2 * i + 1] = math.sin(angle), math.cos(angle)
    return code


@pytest.mark.parametrize("d_model", [2, 6, 64, 512])
def test_sinusoidal_is_the_papers_formula(d_model):
    positions = torch.tensor([0, 1, 2, 19, 1000, 100_000])
    wanted = torch.tensor([paper(p, d_model) for p in positions.tolist()], dtype=torch.float64)
    assert largest_difference(sinusoidal_code(positions, d_model), wanted) < 1e-9
    halves = torch.cat([wanted[:, 0::2], wanted[:, 1::2]], dim=-1)  # all sines, then all cosines
    assert largest_difference(sinusoidal_code(positions, d_model, layout="halves"), halves) < 1e-9
    other = torch.tensor([paper(p, d_model, base=100.0) for p in positions.tolist()], dtype=torch.float64)
    assert largest_difference(sinusoidal_code(positions, d_model, base=100.0), other) < 1e-9


def test_the_picture_of_20_positions_and_512_numbers():
    """The figure of The Illustrated Transformer: sines on the left, cosines on the right."""
    picture = sinusoidal_code(torch.arange(20), 512, layout="halves")
    assert picture.shape == (20, 512)
    assert picture.abs().max() <= 1
    assert (picture[0, :256] == 0).all()
    assert (picture[0, 256:] == 1).all()
    assert largest_difference(picture.square().sum(-1), torch.full((20,), 256.0)) < 1e-9
    assert (picture[1:, 255].diff() > 0).all()
    assert picture[:, 255].max() < 0.003
    assert torch.unique(picture, dim=0).size(0) == 20


def test_a_shifted_code_is_a_rotation_of_the_code():
    """What makes relative positions readable: PE(pos + k) is the same linear map of PE(pos) for every pos."""
    d_model, shift = 8, 5
    codes = sinusoidal_code(torch.arange(30), d_model)
    for i in range(d_model // 2):
        angle = shift / 10_000 ** (2 * i / d_model)
        turn = torch.tensor([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]]).double()
        pair = codes[:, 2 * i : 2 * i + 2]
        assert largest_difference(pair[:-shift] @ turn.T, pair[shift:]) < 1e-6


def test_sinusoidal_adds_the_code_of_each_rows_positions():
    x = numbers(2, 3, 8)
    positions = torch.tensor([[0, 1, 2], [7, 0, 1]])
    for layout in ("interleaved", "halves"):
        out = Sinusoidal(layout=layout)(x, positions)
        assert largest_difference(out, x + sinusoidal_code(positions, 8, layout=layout)) == 0
        assert largest_difference(out[1, 1:], Sinusoidal(layout=layout)(x[1:, 1:], torch.arange(2))[0]) == 0
    assert Sinusoidal()(x.float(), positions).dtype == torch.float32


def test_an_odd_width_has_no_pairs():
    with pytest.raises(ValueError, match="d_model=7 must be even"):
        sinusoidal_code(torch.arange(3), 7)
    with pytest.raises(ValueError, match="d_head=3 must be even"):
        Rotary(d_head=3)


def test_adding_a_code_equals_a_product_with_the_concatenated_one_hot_position():
    """[x, p] W = x W_I + p W_P: a row of W_P is the code of that position."""
    n_positions, d_in, d_model = 5, 6, 8
    w = numbers(d_in + n_positions, d_model)
    x = numbers(n_positions, d_in, name="x")
    p = one_hot(torch.arange(n_positions), n_positions, like=w)
    together = torch.cat([x, p], dim=-1) @ w
    assert largest_difference(together, x @ w[:d_in] + w[d_in:]) < 1e-14
    learned = Learned(max_len=n_positions, d_model=d_model).double()
    with torch.no_grad():
        learned.table.weight.copy_(w[d_in:])
    assert largest_difference(learned(x @ w[:d_in], torch.arange(n_positions)), together) < 1e-14


def test_learned_adds_the_row_of_each_position():
    learned = fill(Learned(max_len=6, d_model=4))
    x = numbers(2, 3, 4)
    positions = torch.tensor([[0, 1, 2], [5, 0, 1]])
    assert torch.equal(learned(x, positions), x + learned.table.weight[positions])
    assert torch.equal(NoPositions()(x, positions), x)


# Rotary


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_rotary_rotates_each_pair_by_its_angle(layout):
    x = numbers(1, 1, 4, 6)
    positions = torch.tensor([0, 1, 9, 500])
    turned = Rotary(d_head=6, layout=layout)(x, positions)
    for t, position in enumerate(positions.tolist()):
        for i in range(3):
            a, b = (i, i + 3) if layout == "halves" else (2 * i, 2 * i + 1)
            angle = position / 10_000 ** (2 * i / 6)
            first, second = x[0, 0, t, a].item(), x[0, 0, t, b].item()
            assert abs(turned[0, 0, t, a] - (first * math.cos(angle) - second * math.sin(angle))) < 1e-11
            assert abs(turned[0, 0, t, b] - (first * math.sin(angle) + second * math.cos(angle))) < 1e-11


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_after_rotary_a_score_depends_on_the_distance_alone(layout):
    rotary = Rotary(d_head=8, layout=layout)
    q, k = numbers(1, 1, 1, 8, name="q"), numbers(1, 1, 1, 8, name="k")

    def score(query: int, key: int) -> float:
        return float((rotary(q, torch.tensor([query])) * rotary(k, torch.tensor([key]))).sum())

    for query, key in ((3, 1), (1, 3), (0, 4)):
        assert all(abs(score(query + n, key + n) - score(query, key)) < 1e-9 for n in (1, 17, 1000))
    assert abs(score(3, 1) - score(1, 3)) > 1e-3  # it also knows the direction


@pytest.mark.parametrize("layout", ["halves", "interleaved"])
def test_rotary_keeps_lengths_and_leaves_position_zero(layout):
    rotary = Rotary(d_head=8, layout=layout)
    x = numbers(2, 3, 5, 8)
    turned = rotary(x, torch.arange(5))
    assert largest_difference(turned.norm(dim=-1), x.norm(dim=-1)) < 1e-12
    assert torch.equal(turned[:, :, 0], x[:, :, 0])
    assert rotary(x.float(), torch.arange(5)).dtype == torch.float32


def test_rotary_takes_a_row_of_positions_for_each_sentence():
    rotary = Rotary(d_head=4)
    x = numbers(2, 3, 3, 4)
    positions = torch.tensor([[0, 1, 2], [5, 0, 9]])
    together = rotary(x, positions)
    for row in range(2):
        assert torch.equal(together[row : row + 1], rotary(x[row : row + 1], positions[row]))


# Relative bias


def t5_bucket(distance: int, *, bidirectional: bool, n_buckets: int, max_distance: int) -> int:
    """T5's rule: one half of the buckets for each direction; in it single distances, then logarithmic steps."""
    first = 0
    if bidirectional:
        n_buckets //= 2
        first = n_buckets if distance > 0 else 0
        distance = abs(distance)
    else:
        distance = max(0, -distance)
    exact = n_buckets // 2
    if distance < exact:
        return first + distance
    steps = math.log(distance / exact) / math.log(max_distance / exact) * (n_buckets - exact)
    return first + min(n_buckets - 1, exact + int(steps + 1e-6))  # at an edge: as float32 rounds it


@pytest.mark.parametrize("bidirectional", [False, True])
@pytest.mark.parametrize(("n_buckets", "max_distance"), [(32, 128), (8, 20), (6, 50)])
def test_buckets_follow_t5s_rule(bidirectional, n_buckets, max_distance):
    bias = RelativeBias(n_heads=1, bidirectional=bidirectional, n_buckets=n_buckets, max_distance=max_distance)
    distances = torch.arange(-300, 301)
    rule = {"bidirectional": bidirectional, "n_buckets": n_buckets, "max_distance": max_distance}
    wanted = [t5_bucket(d, **rule) for d in distances.tolist()]
    assert bias.bucket(distances).tolist() == wanted
    assert set(wanted) == set(range(n_buckets)) - ({n_buckets // 2} if bidirectional else set())


def test_buckets_that_are_known():
    """The public T5's own numbers: 32 buckets, distance 128."""
    both = RelativeBias(n_heads=1, bidirectional=True)
    assert both.bucket(torch.tensor([0, -1, 1, -7, 7, -8, 8, -127, 127, -128, 5000])).tolist() == [
        *(0, 1, 17, 7, 23, 8, 24, 15, 31, 15, 31),
    ]
    back = RelativeBias(n_heads=1, bidirectional=False)
    assert back.bucket(torch.tensor([0, 3, -1, -15, -16, -20, -21, -127, -128, -5000])).tolist() == [
        *(0, 0, 1, 15, 16, 17, 18, 31, 31, 31),
    ]


def test_relative_bias_reads_the_table_by_head_query_and_key():
    bias = fill(RelativeBias(n_heads=3, bidirectional=True, n_buckets=8, max_distance=20))
    queries, keys = torch.tensor([4, 5]), torch.arange(7)
    values = bias(queries, keys)
    assert values.shape == (3, 2, 7)
    for h in range(3):
        for t, query in enumerate(queries.tolist()):
            for s in range(7):
                bucket = t5_bucket(s - query, bidirectional=True, n_buckets=8, max_distance=20)
                assert values[h, t, s] == bias.table.weight[bucket, h]
    rows = bias(torch.tensor([[4, 5], [0, 1]]), torch.arange(7).expand(2, 7))
    assert rows.shape == (2, 3, 2, 7)
    assert torch.equal(rows[0], values)


# ALiBi


def test_alibi_slopes_for_a_power_of_two_are_the_papers():
    assert Alibi(n_heads=8).slopes == [2**-i for i in range(1, 9)]
    assert Alibi(n_heads=1).slopes == [2**-8]


def test_alibi_slopes_between_powers_of_two():
    """12 heads: the 8 of eight heads, then the first, third, fifth and seventh of sixteen."""
    of_16 = [2 ** (-i / 2) for i in range(1, 17)]
    assert Alibi(n_heads=16).slopes == of_16
    assert Alibi(n_heads=12).slopes == [2**-i for i in range(1, 9)] + of_16[0:8:2]


def test_alibi_subtracts_slope_times_distance():
    bias = Alibi(n_heads=2)(torch.tensor([3, 4]), torch.arange(6))
    assert bias.shape == (2, 2, 6)
    assert bias[0, 0].tolist() == [-d / 16 for d in (3, 2, 1, 0, 1, 2)]
    assert bias[1, 1].tolist() == [-d / 256 for d in (4, 3, 2, 1, 0, 1)]
    rows = Alibi(n_heads=2)(torch.tensor([[3, 4], [0, 1]]), torch.arange(6).expand(2, 6))
    assert torch.equal(rows[0], bias)
