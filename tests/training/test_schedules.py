"""The learning rate, step by step."""

import itertools

import pytest

from heedful.training.optim import OptimiserSettings, ScheduleSettings, learning_rate, peak_rate


def rates(kind: str, *, steps: int = 100, warmup: int = 10, final: float = 0.0) -> list[float]:
    schedule = ScheduleSettings(kind=kind, warmup_steps=warmup, final_lr=final)  # type: ignore[arg-type]
    return [learning_rate(step, peak=1.0, steps=steps, schedule=schedule) for step in range(steps)]


def test_the_papers_formula() -> None:
    """d_model^-0.5 x min(step^-0.5, step x warmup^-1.5), steps counted from one."""
    schedule = ScheduleSettings(warmup_steps=4000)
    peak = peak_rate(OptimiserSettings(), d_model=512, warmup_steps=4000)
    for step in (1, 2, 100, 3999, 4000, 4001, 50_000):
        paper = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step - 1, peak=peak, steps=100_000, schedule=schedule) == pytest.approx(paper, rel=1e-12)


@pytest.mark.parametrize("kind", ["inverse_sqrt", "cosine", "linear", "constant"])
def test_warm_up_is_linear_and_ends_at_the_peak(kind: str) -> None:
    found = rates(kind)
    assert found[:10] == pytest.approx([(i + 1) / 10 for i in range(10)])
    assert max(found) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["cosine", "linear"])
def test_ends_at_the_final_rate(kind: str) -> None:
    schedule = ScheduleSettings(kind=kind, warmup_steps=10, final_lr=0.1)  # type: ignore[arg-type]
    assert learning_rate(100, peak=1.0, steps=100, schedule=schedule) == pytest.approx(0.1)
    assert learning_rate(55, peak=1.0, steps=100, schedule=schedule) == pytest.approx(0.55)
    found = rates(kind, final=0.1)
    assert all(a >= b for a, b in itertools.pairwise(found[10:]))


def test_no_warm_up() -> None:
    assert rates("constant", warmup=0) == [1.0] * 100
    assert rates("inverse_sqrt", warmup=0)[0] == 1.0
