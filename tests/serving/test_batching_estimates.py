"""The predicted wait follows the measured speed: late requests are rejected at once, accepted ones are in time."""

import asyncio
import random
import threading
import time

import pytest

from echo_service import HeldEngine, echo_translator
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.segmentation import UNSPACED
from heedful.serving.batching import PLANNED_SHARE, AdmissionQueue, Batcher, LatencyEstimator, size_of, work_of
from heedful.serving.errors import ApiError
from heedful.serving.service import WARM_UPS

SETTINGS = SearchSettings(beam=2)
DEADLINE = 30.0


class Clock:
    """A clock that advances only during work."""

    def __init__(self) -> None:
        self.now = 0.0
        self._lock = threading.Lock()

    def __call__(self) -> float:
        return self.now

    def pass_by(self, seconds: float) -> None:
        with self._lock:
            self.now += seconds


class SlowEngine(HeldEngine):
    """An engine that takes `per_text` seconds of its clock for each text."""

    def __init__(self, clock: Clock, *, per_text: float) -> None:
        super().__init__()
        self.clock, self.per_text = clock, per_text

    def search(self, requests, settings, **_):
        found = super().search(requests, settings)
        self.clock.pass_by(self.per_text * len(requests))
        return found


def learned(pace: float, *, seconds: float = DEADLINE) -> tuple[LatencyEstimator, Clock]:
    clock = Clock()
    estimator = LatencyEstimator(seconds=seconds, clock=clock)
    for _ in range(20):
        began = clock.now
        clock.pass_by(1000 * pace)
        estimator.learn(1000, began)
    return estimator, clock


def test_sizes_are_about_four_per_token():
    assert size_of("A dog runs.") == len("A dog runs.")
    assert size_of("Ein Müller läuft, Собака бежит, 개") == len("Ein Müller läuft, Собака бежит, 개")
    assert size_of("一只狗在跑。") == 4 * 6 and size_of("犬が走る") == 4 * 4
    assert size_of("A 狗!") == 7 and size_of("\ud800狗") == 5 and size_of("𠀋") == 4
    for code in range(0x10000):  # whatever is written without spaces when texts are cut is so here
        if UNSPACED.match(chr(code)):
            assert size_of(chr(code)) == 4


def test_sizes_are_fast_for_any_text():
    text = "狗a" * 160_000  # as many characters as a request may have
    started = time.perf_counter()
    assert size_of(text) == 160_000 * 5
    assert time.perf_counter() - started < 0.05


def test_queue_and_batches_count_chinese_by_tokens():
    """A limit in plain characters would accept four times as many tokens."""

    async def ask(letter: str) -> tuple[int, int]:
        engine = HeldEngine()
        room = AdmissionQueue(requests=1_000, characters=4_000)
        batcher = Batcher(echo_translator(engine), room, batch_characters=1_000, seconds=60.0, n_threads=1)
        engine.gate.clear()
        tasks = [asyncio.create_task(batcher.translate([f"{letter * 37}{n:03d}"], SETTINGS)) for n in range(150)]
        await asyncio.sleep(0.05)
        accepted = room.requests
        engine.gate.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        batcher.close()
        return accepted, max(engine.batches[1:])

    assert asyncio.run(ask("a")) == (100, 25)
    assert asyncio.run(ask("狗")) == (4_000 // (37 * 4 + 3), 7)


def test_no_prediction_before_the_first_measurement():
    estimator = LatencyEstimator(seconds=DEADLINE)
    estimator.work = 10**9
    assert estimator.has_time_for(10**9)
    assert estimator.wait() == 0.0 and estimator.retry_after() == 1
    assert estimator.batch(2) == float("inf")


@pytest.mark.parametrize("pace", [0.0001, 0.01])
def test_the_accepted_work_is_bounded_by_the_deadline(pace):
    estimator, _ = learned(pace)
    most = round(PLANNED_SHARE * DEADLINE / pace)
    estimator.work = most // 2
    assert estimator.wait() == pytest.approx(PLANNED_SHARE * DEADLINE / 2)
    assert estimator.has_time_for(most // 2 - 1) and not estimator.has_time_for(most // 2 + 2)
    assert estimator.retry_after() == round(PLANNED_SHARE * DEADLINE / 2)
    estimator.work = 0
    assert estimator.has_time_for(100 * most)  # alone


def test_the_first_batch_does_not_count():
    clock = Clock()
    estimator = LatencyEstimator(seconds=DEADLINE, clock=clock)
    clock.pass_by(100.0)  # a model is loaded
    estimator.learn(1000, 0.0)
    estimator.work = 1000
    assert estimator.wait() == 0.0
    clock.pass_by(1.0)
    estimator.learn(1000, 100.0)
    assert estimator.wait() == pytest.approx(1.0)


def test_overlapping_batches_count_once():
    clock = Clock()
    estimator = LatencyEstimator(seconds=DEADLINE, clock=clock)
    for start in range(0, 40, 2):  # two threads: each batch takes two seconds, one ends every second
        for began in (start, start + 1):
            clock.now = began + 2.0
            estimator.learn(500, float(began))
    estimator.work = 500
    assert estimator.wait() == pytest.approx(1.0, rel=0.05)


def test_idle_time_does_not_count():
    estimator, clock = learned(0.001)
    clock.pass_by(3600.0)
    began = clock.now
    clock.pass_by(1.0)
    estimator.learn(1000, began)
    estimator.work = 1000
    assert estimator.wait() == pytest.approx(1.0)


def test_the_prediction_follows_a_slower_machine():
    estimator, clock = learned(0.001)
    for _ in range(8):  # ten times as slow, for 80 seconds
        began = clock.now
        clock.pass_by(10.0)
        estimator.learn(1000, began)
    estimator.work = 1000
    assert estimator.wait() > 9.0


def test_small_batches_weigh_less_than_large_ones():
    """A short text alone is slow for its size; the prediction must still follow the larger batches before."""
    estimator, clock = learned(0.0001)
    for _ in range(20):
        began = clock.now
        clock.pass_by(0.05)
        estimator.learn(work_of(["Hi."], beam=SETTINGS.beam), began)
    estimator.work = 100_000
    assert estimator.wait() < 40.0  # of 10; by the small ones alone it would be 58


def slow_batcher(clock: Clock, per_text: float, *, n_threads: int = 1) -> tuple[Batcher, SlowEngine]:
    engine = SlowEngine(clock, per_text=per_text)
    room = AdmissionQueue(requests=128, characters=65_536)
    batcher = Batcher(
        echo_translator(engine), room, batch_characters=16_384, seconds=DEADLINE, n_threads=n_threads, clock=clock
    )
    return batcher, engine


@pytest.mark.parametrize("per_text", [0.001, 0.7, 4.0])
def test_accepted_requests_are_in_time_and_others_rejected_at_once(per_text):
    """Send a hundred requests to a server that has measured only its warm-up, then another hundred."""
    clock = Clock()
    draw = random.Random(2)
    texts = ["".join(draw.choices("abcdefgh", k=60)) for _ in range(200)]
    refused: list[ApiError] = []
    took: list[float] = []

    async def ask(batcher: Batcher, text: str) -> None:
        accepted_at = clock.now
        try:
            await batcher.translate([text], SETTINGS)
            took.append(clock.now - accepted_at)
        except ApiError as refusal:
            refused.append(refusal)

    async def bursts() -> None:
        batcher, engine = slow_batcher(clock, per_text)
        for _ in range(WARM_UPS):
            await batcher.translate(["Hello."], SETTINGS)
        for start in (0, 100):
            engine.gate.clear()  # all of them ask before the first is answered
            tasks = [asyncio.create_task(ask(batcher, text)) for text in texts[start : start + 100]]
            await asyncio.sleep(0.05)
            engine.gate.set()
            await asyncio.gather(*tasks)
        batcher.close()
        assert batcher.estimator.work == batcher.room.requests == 0
        assert batcher.room.accepted == batcher.room.answered

    asyncio.run(bursts())
    assert len(took) + len(refused) == 200
    assert max(took) <= DEADLINE
    assert all(one.status == 429 and 1 <= one.retry_after <= 30 for one in refused)
    if per_text == 0.001:
        assert not refused
    else:
        assert len(took) >= 2 * 0.4 * DEADLINE / per_text  # and it is not timid, either
        assert min(one.retry_after for one in refused) >= 10


def test_a_batch_takes_at_most_its_share_of_the_deadline():
    clock = Clock()

    async def ask() -> list[int]:
        batcher, engine = slow_batcher(clock, 0.5)
        for _ in range(2):
            await batcher.translate([f"{chr(65 + n)}" * 60 for n in range(5)], SETTINGS)
        engine.batches.clear()
        await batcher.translate([f"{chr(97 + n)}" * 60 for n in range(26)], SETTINGS)
        batcher.close()
        return engine.batches

    batches = asyncio.run(ask())
    assert sum(batches) == 26
    assert 0.5 * max(batches) <= DEADLINE / 3
