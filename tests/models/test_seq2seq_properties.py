"""What must hold for every Transformer that the settings can describe, in float64.

Every pattern x positions x norm that can combine, twice, with the other settings and all shapes drawn anew: causality
bit for bit, no gradient from the future or from padding, padding that changes nothing, a cache that changes nothing.
"""

import itertools
import random
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from deterministic import fill, largest_difference, whole_numbers
from heedful.errors import UserError
from heedful.models.seq2seq import Memory, PatternConfig, Seq2Seq, Seq2SeqConfig

PATTERNS = ("full", "additive", "local", "window", "strided", "dilated", "sparse", "top_k")
POSITIONS = ("sinusoidal", "sinusoidal_halves", "learned", "rotary", "relative", "alibi", "none")
NORMS = ("layer", "rms", "batch")
ROUNDS = 2
VOCAB, OTHER_VOCAB = 13, 11


def can_combine(pattern: str, positions: str) -> bool:
    """A bias is added to all pairs of tokens; the patterns on positions do not compute all pairs."""
    return positions not in ("relative", "alibi") or pattern in ("full", "additive", "top_k")


COMBINATIONS = [pair for pair in itertools.product(PATTERNS, POSITIONS) if can_combine(*pair)]


def test_there_are_enough_cases():
    assert len(COMBINATIONS) * len(NORMS) * ROUNDS >= 200


def test_what_cannot_combine_is_refused():
    for pattern, positions in itertools.product(PATTERNS, POSITIONS):
        if not can_combine(pattern, positions):
            with pytest.raises(UserError, match="does not compute every pair"):
                Seq2SeqConfig(VOCAB, VOCAB, positions=positions, pattern=PatternConfig(kind=pattern))


@dataclass
class Case:
    name: str
    model: Seq2Seq
    source: Tensor  # (B, S)
    source_mask: Tensor  # (B, S), the first row full
    target: Tensor  # (B, T)

    @property
    def keeps_the_query(self) -> bool:
        """Without a residual, what cross-attention reads replaces what was written."""
        return self.model.config.residual != "none"

    @property
    def memory(self) -> Memory:
        return self.model.encode(self.source, self.source_mask)


def draw(pattern: str, positions: str, norm: str, round_: int, *, dropout: float = 0.3) -> Case:
    choose = random.Random(f"{pattern} {positions} {norm} {round_}")
    tied = choose.choice(["all", "target", "none"])
    n_kv_heads, groups = choose.choice([1, 2]), choose.choice([1, 2])
    config = Seq2SeqConfig(
        source_vocab_size=VOCAB if tied == "all" else OTHER_VOCAB,
        target_vocab_size=VOCAB,
        d_model=choose.choice([8, 12]),
        n_layers=choose.choice([1, 2]),
        n_decoder_layers=choose.choice([None, 1, 2, 3]),
        n_heads=n_kv_heads * groups,
        n_kv_heads=choose.choice([n_kv_heads, n_kv_heads if groups > 1 else None]),
        d_head=choose.choice([2, 4, 6]),
        d_ff=10,
        dropout=dropout,
        attention_dropout=dropout,
        activation=choose.choice(["relu", "gelu", "swiglu", "geglu"]),
        norm=norm,
        residual=choose.choice(["pre", "post", "none"]),
        positions=positions,
        max_len=24,
        pattern=PatternConfig(kind=pattern, span=choose.choice([1, 2, 3, 5, 64]), n_global=choose.choice([0, 1, 2])),
        join=choose.choice(["last", "matching", "mix"]),
        tied=tied,
        init=choose.choice(["xavier", "t5"]),
    )
    rows, source_len, target_len = choose.randint(1, 3), choose.randint(1, 12), choose.randint(2, 11)
    lengths = torch.tensor([[source_len], *([choose.randint(1, source_len)] for _ in range(rows - 1))])
    name = f"{config}, {rows} rows, source {lengths.flatten().tolist()}, target {target_len}"
    return Case(
        name=name,
        model=fill(Seq2Seq(config)),
        source=whole_numbers(rows, source_len, below=config.source_vocab_size, name=f"{name} source"),
        source_mask=torch.arange(source_len)[None] < lengths,
        target=whole_numbers(rows, target_len, below=VOCAB, name=f"{name} target"),
    )


def same(found: Tensor, wanted: Tensor, tolerance: float = 1e-10) -> bool:
    """Invented running statistics let logits grow far beyond one, and their rounding with them."""
    return largest_difference(found, wanted) < tolerance * max(1.0, wanted.abs().max().item())


def other_ids(ids: Tensor, vocab_size: int) -> Tensor:
    return (ids + 1 + whole_numbers(*ids.shape, below=vocab_size - 1, name="others")) % vocab_size


def check_causality(case: Case) -> None:
    """Other tokens after t leave everything up to t as it was, to the last bit."""
    memory, length = case.memory, case.target.size(1)
    before = case.model.decode(case.target, memory)
    assert before.isfinite().all(), case.name
    for t in {0, (length - 1) // 2, length - 2}:
        changed = case.target.clone()
        changed[:, t + 1 :] = other_ids(changed[:, t + 1 :], VOCAB)
        after = case.model.decode(changed, memory)
        assert torch.equal(before[:, : t + 1], after[:, : t + 1]), f"{case.name}: position {t} sees the future"
        if case.keeps_the_query:
            assert not torch.equal(before[:, t + 1], after[:, t + 1]), f"{case.name}: {t + 1} does not see itself"


def gradient_of_embeddings(case: Case, side: str, logits_of: slice) -> Tensor:
    """d (some logits) / d (embedded tokens of that side), (B, length, D)."""
    kept = []

    def keep(module, inputs, output):
        kept.append(output)

    # Where source and target share a module it is called for the source first.
    hook = getattr(case.model, f"{side}_embedding").register_forward_hook(keep)
    logits = case.model(case.source, case.target, case.source_mask)
    hook.remove()
    embedded = kept[0] if side == "source" else kept[-1]
    (gradient,) = torch.autograd.grad(logits[:, logits_of].square().sum(), embedded)
    return gradient


def check_gradients(case: Case) -> None:
    """Exactly zero from the future and from padding, and not zero from what is read."""
    t = case.target.size(1) // 2
    from_target = gradient_of_embeddings(case, "target", slice(t, t + 1))
    assert from_target.isfinite().all(), case.name
    assert (from_target[:, t + 1 :] == 0).all(), f"{case.name}: a gradient from the future"
    assert (from_target[:, t] != 0).any() or not case.keeps_the_query, case.name
    from_source = gradient_of_embeddings(case, "source", slice(None))
    assert (from_source[~case.source_mask] == 0).all(), f"{case.name}: a gradient from padding"
    assert (from_source[case.source_mask] != 0).any(), case.name


def check_padding(case: Case) -> None:
    """A sentence alone = the same in a batch, whatever ids stand in its padding."""
    vocab_size = case.model.config.source_vocab_size
    together = case.model(case.source, case.target, case.source_mask)
    rubbish = torch.where(case.source_mask, case.source, other_ids(case.source, vocab_size))
    assert torch.equal(case.model(rubbish, case.target, case.source_mask), together), case.name
    for row, length in enumerate(case.source_mask.sum(dim=1).tolist()):
        alone = case.model(case.source[row : row + 1, :length], case.target[row : row + 1])
        assert same(alone[0], together[row]), case.name
        shorter = case.target[row : row + 1, :-1]  # the target's padding is what follows it
        assert same(case.model.decode(shorter, case.memory.rows(torch.tensor([row])))[0], together[row, :-1]), case.name


@torch.no_grad()
def check_cache(case: Case) -> None:
    """Token by token, in pieces, and with rows exchanged on the way, as without a cache."""
    memory, target, length = case.memory, case.target, case.target.size(1)
    whole = case.model.decode(target, memory)
    cache = case.model.make_cache()
    for t in range(length):
        step = case.model.decode(target[:, t : t + 1], memory, cache=cache)
        assert same(step[:, 0], whole[:, t]), f"{case.name}: step {t}"
    assert cache.length == length
    half = length // 2
    for pieces in ([half, length - half], [length], [1, length - 1]):
        cache, start = case.model.make_cache(), 0
        for n in pieces:
            step = case.model.decode(target[:, start : start + n], memory, cache=cache)
            assert same(step, whole[:, start : start + n]), f"{case.name}: {n} from {start}"
            start += n
    rows = torch.arange(target.size(0)).flip(0).repeat(2)  # as a beam search of two would
    cache = case.model.make_cache()
    case.model.decode(target[:, :half], memory, cache=cache)
    cache.reorder(rows)
    step = case.model.decode(target[rows, half:], memory.rows(rows), cache=cache)
    assert same(step, whole[rows, half:]), f"{case.name}: reordered"


CHECKS = {"causality": check_causality, "gradients": check_gradients, "padding": check_padding, "cache": check_cache}


@pytest.mark.parametrize(("pattern", "positions"), COMBINATIONS)
def test_every_combination(pattern, positions):
    for norm, round_ in itertools.product(NORMS, range(ROUNDS)):
        case = draw(pattern, positions, norm, round_)
        for check in CHECKS.values():
            check(case)


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("norm", NORMS)
def test_single_precision_keeps_the_same_promises(pattern, norm):
    """float32: causality is still exact, padding and cache within 1e-5."""
    case = draw(pattern, "sinusoidal", norm, 0)
    case.model.float()
    check_causality(case)
    memory = case.memory
    whole, cache = case.model.decode(case.target, memory), case.model.make_cache()
    with torch.no_grad():
        steps = [case.model.decode(case.target[:, t : t + 1], memory, cache=cache) for t in range(case.target.size(1))]
    assert same(torch.cat(steps, dim=1), whole, 1e-5)
    for row, length in enumerate(case.source_mask.sum(dim=1).tolist()):
        alone = case.model(case.source[row : row + 1, :length], case.target[row : row + 1])
        assert same(alone[0], whole[row], 1e-5)


@pytest.mark.parametrize("positions", ["rotary", "relative", "alibi", "none"])
def test_padding_on_the_left_changes_nothing_where_only_distances_count(positions):
    for norm, round_ in itertools.product(NORMS, range(ROUNDS)):
        case = draw("full", positions, norm, round_)
        padded = torch.nn.functional.pad(case.source, (3, 0), value=5)
        mask = torch.nn.functional.pad(case.source_mask, (3, 0), value=False)
        wanted = case.model(case.source, case.target, case.source_mask)
        assert same(case.model(padded, case.target, mask), wanted), case.name


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_batch_without_rows_passes_through_forward_and_backward(pattern):
    """The last step of an epoch may have fewer rows than ranks; the gradient is then zero, not absent or NaN."""
    for norm in NORMS:
        model = draw(pattern, "rotary", norm, 0).model.train()
        empty = torch.zeros(0, 1, dtype=torch.long)
        real = torch.zeros(0, 1, dtype=torch.bool)
        logits = model(empty, empty, real, real)
        assert logits.shape == (0, 1, VOCAB)
        logits.sum().backward()
        assert all(p.grad is not None and (p.grad == 0).all() for p in model.parameters() if p.requires_grad)


def test_training_with_batch_norm_ignores_padding_on_both_sides():
    results = []
    for rubbish in (1, 2):
        case = draw("full", "sinusoidal", "batch", 1, dropout=0.0)
        model = case.model.train()
        source = whole_numbers(3, 6, below=model.config.source_vocab_size, name="s")
        target = whole_numbers(3, 5, below=VOCAB, name="t")
        source_mask = torch.arange(6)[None] < torch.tensor([[6], [2], [3]])
        target_mask = torch.arange(5)[None] < torch.tensor([[2], [5], [3]])
        source, target = source.masked_fill(~source_mask, rubbish), target.masked_fill(~target_mask, rubbish)
        logits = model(source, target, source_mask, target_mask)
        results.append([logits[target_mask], *(buffer.clone() for buffer in model.buffers())])
    for a, b in zip(*results, strict=True):
        assert largest_difference(a, b) < 1e-12
