"""Dynamic batching: requests are decoded together, each gets its own answers in order, and no place is lost."""

import asyncio
import itertools
import random
import time
from collections.abc import Callable

import pytest

from echo_engine import tokenizers
from echo_service import HeldEngine, backwards, echo_translator
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translator import Translator
from heedful.serving.batching import AdmissionQueue, Batcher, CannotTranslate, LatencyEstimator
from heedful.serving.errors import ApiError
from tiny_translator import tiny_translator

SETTINGS = SearchSettings(beam=2)


def batcher_of(translator: Translator, *, requests: int = 10**6, seconds: float = 60.0, n_threads: int = 2) -> Batcher:
    room = AdmissionQueue(requests=requests, characters=10**9)
    return Batcher(translator, room, batch_characters=2_000, seconds=seconds, n_threads=n_threads)


def random_texts(n: int, *, longest: int = 60) -> list[str]:
    draw = random.Random(5)
    return ["".join(draw.choices("abcdefgh XYZ.", k=draw.randint(1, longest))) + "z" for _ in range(n)]


def test_a_thousand_clients_get_their_answers_in_order():
    engine = HeldEngine()
    texts = random_texts(3_000)
    expected = echo_translator(HeldEngine()).search(texts, beam=2)

    async def all_at_once():
        batcher = batcher_of(echo_translator(engine))
        draw, tasks, start = random.Random(1), [], 0
        while start < len(texts):
            n = draw.randint(1, 5)
            tasks.append(asyncio.create_task(batcher.translate(texts[start : start + n], SETTINGS)))
            start += n
        results = [one for task in tasks for one in await task]
        batcher.close()
        return len(tasks), results

    n_requests, results = asyncio.run(all_at_once())
    assert n_requests >= 900
    assert results == expected
    assert len(engine.batches) < n_requests / 5  # they were merged


def test_answers_of_a_real_model_equal_offline_ones():
    translator = tiny_translator()
    texts = random_texts(60, longest=20)
    expected = tiny_translator().search(texts, beam=2, max_len=12)

    async def all_at_once():
        batcher = batcher_of(translator)
        tasks = [batcher.translate([text], SearchSettings(beam=2, max_len=12)) for text in texts]
        results = [one[0] for one in await asyncio.gather(*tasks)]
        batcher.close()
        return results

    results = asyncio.run(all_at_once())
    assert [one[0].text for one in results] == [one[0].text for one in expected]
    for one, other in zip(results, expected, strict=True):
        assert one[0].score == pytest.approx(other[0].score, abs=1e-9)


def test_different_settings_are_not_mixed():
    async def ask():
        batcher = batcher_of(echo_translator())
        tasks = [batcher.translate(["abcdef"], SearchSettings(beam=4, n_best=n)) for n in (1, 2, 3, 4) * 20]
        results = await asyncio.gather(*tasks)
        batcher.close()
        return [len(one[0]) for one in results]

    assert asyncio.run(ask()) == [1, 2, 3, 4] * 20


def test_a_small_request_does_not_wait_for_a_large_one():
    engine = HeldEngine(seconds=0.01)

    async def ask():
        batcher = batcher_of(echo_translator(engine), n_threads=1)
        large = asyncio.create_task(batcher.translate(random_texts(2_000, longest=100), SETTINGS))
        await asyncio.sleep(0.05)
        await batcher.translate(["small"], SETTINGS)
        was_first = not large.done()
        await large
        batcher.close()
        return was_first

    assert asyncio.run(ask())


def test_large_requests_finish_one_after_another():
    """If large requests shared every batch, all would finish at the end, and all clients would return at once."""

    class Counted(HeldEngine):
        n_ended = 0

        def search(self, requests, settings, **_):
            results = super().search(requests, settings)
            self.n_ended += 1
            return results

    engine = Counted(seconds=0.1)  # long enough for a busy machine to wake the client before the next has ended
    done: list[int] = []

    async def ask():
        batcher = batcher_of(echo_translator(engine), n_threads=1)

        async def client(number: int) -> None:
            texts = [f"{chr(97 + number)}{text}" for text in random_texts(60)]
            await batcher.translate(texts, SETTINGS)
            done.append(engine.n_ended)

        await asyncio.gather(*(client(number) for number in range(4)))
        batcher.close()

    asyncio.run(ask())
    assert len(set(done)) > 1 and min(done) <= len(engine.batches) / 2, done


def test_threads_share_the_texts():
    engine = HeldEngine()

    async def ask():
        batcher = batcher_of(echo_translator(engine), n_threads=2)
        engine.gate.clear()
        tasks = asyncio.create_task(batcher.translate([f"{text}{n}" for n, text in enumerate("abcd" * 20)], SETTINGS))
        started = time.monotonic()
        while len(engine.batches) < 2 and time.monotonic() - started < 10:
            await asyncio.sleep(0.001)
        engine.gate.set()
        await tasks
        batcher.close()

    asyncio.run(ask())
    assert engine.batches == [40, 40]


async def held(engine: HeldEngine, act: Callable[[Batcher], object], **how: float) -> object:
    """Call `act` while every thread is inside a search, then let the searches end."""
    batcher = batcher_of(echo_translator(engine), n_threads=1, **how)  # type: ignore[arg-type]
    engine.gate.clear()
    first = asyncio.create_task(batcher.translate(["first"], SETTINGS))
    while not engine.batches:
        await asyncio.sleep(0.001)
    try:
        return await act(batcher)  # type: ignore[misc]
    finally:
        engine.gate.set()
        await first
        assert batcher.room.requests == batcher.room.characters == 0
        batcher.close()


def test_a_full_queue_rejects_at_once_with_retry_after():
    async def act(batcher):
        second = asyncio.create_task(batcher.translate(["second"], SETTINGS))
        await asyncio.sleep(0)
        started = time.monotonic()
        with pytest.raises(ApiError) as refused:
            await batcher.translate(["third"], SETTINGS)
        seconds = time.monotonic() - started
        second.cancel()
        await asyncio.wait([second])
        return refused.value, seconds

    refusal, seconds = asyncio.run(held(HeldEngine(), act, requests=2))
    assert refusal.status == 429 and refusal.retry_after >= 1
    assert seconds < 0.05


def test_a_disconnected_client_frees_its_place_and_is_not_decoded():
    engine, tokenised = HeldEngine(), []

    async def act(batcher):
        segmenter = batcher.translator.segmenter
        plan = segmenter.segment
        segmenter.segment = lambda texts: (tokenised.extend(texts), plan(texts))[1]
        for _ in range(50):
            leaving = asyncio.create_task(batcher.translate(["never"] * 10, SETTINGS))
            await asyncio.sleep(0)
            assert batcher.room.requests == 2
            leaving.cancel()
            await asyncio.wait([leaving])
            assert batcher.room.requests == 1
        engine.gate.set()
        return await batcher.translate(["stays"], SETTINGS)

    asyncio.run(held(engine, act, requests=2))
    tasks = tokenizers().source.decode_batch([list(request.source) for request in engine.asked])
    assert tasks == ["first", "stays"] and tokenised == ["stays"]


def test_a_search_drops_disconnected_clients_at_its_next_step():
    translator = tiny_translator()
    settings = SearchSettings(beam=2, min_len=100_000, max_len=100_000)  # minutes

    async def leave():
        batcher = batcher_of(translator, n_threads=1)
        leaving = asyncio.create_task(batcher.translate(["for ever"], settings))
        await asyncio.sleep(0.3)
        leaving.cancel()
        started = time.monotonic()
        await batcher.translate(["short"], SearchSettings(beam=2, max_len=3))
        seconds = time.monotonic() - started
        batcher.close()
        return seconds

    assert asyncio.run(leave()) < 1.0


def test_a_deadline_is_kept():
    engine = HeldEngine()
    engine.gate.clear()

    async def ask():
        batcher = batcher_of(echo_translator(engine), seconds=0.1)
        started = time.monotonic()
        with pytest.raises(ApiError) as late:
            await batcher.translate(["late"], SETTINGS)
        seconds = time.monotonic() - started
        engine.gate.set()
        assert batcher.room.requests == 0
        batcher.close()
        return late.value, seconds

    refusal, seconds = asyncio.run(ask())
    assert refusal.status == 503 and refusal.retry_after >= 1
    assert 0.1 <= seconds < 1.0


def test_one_bad_text_fails_alone():
    class Broken(HeldEngine):
        def search(self, requests, settings, **_):
            if any(len(request.source) == len("▁bad") for request in requests):
                raise RuntimeError("no")
            return super().search(requests, settings)

    async def ask():
        batcher = batcher_of(echo_translator(Broken()), n_threads=1)
        tasks = [batcher.translate([text], SETTINGS) for text in ("good", "bad", "better")]
        results = await asyncio.gather(*tasks, return_exceptions=True)
        again = await batcher.translate(["after"], SETTINGS)  # and the thread goes on
        batcher.close()
        return results, again

    (good, bad, better), again = asyncio.run(ask())
    assert [one[0][0].text for one in (good, better, again)] == ["doog", "retteb", "retfa"]
    assert isinstance(bad, CannotTranslate)


def test_the_event_loop_runs_while_threads_decode():
    async def ask():
        batcher = batcher_of(echo_translator(HeldEngine(seconds=0.3)))
        task = asyncio.create_task(batcher.translate(["text"], SETTINGS))
        longest, last = 0.0, time.monotonic()
        while not task.done():
            await asyncio.sleep(0.005)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()
        batcher.close()
        return longest

    assert asyncio.run(ask()) < 0.2


def test_partial_translations_are_reported():
    translator = tiny_translator()
    heard: list[str] = []

    async def ask():
        batcher = batcher_of(translator)
        results = await batcher.translate(
            ["abc"], SearchSettings(beam=1, min_len=8, max_len=8), tell=lambda number, text: heard.append(text)
        )
        await asyncio.sleep(0)
        batcher.close()
        return results[0][0].text

    text = asyncio.run(ask())
    assert len(heard) >= 5
    assert all(len(one) <= len(other) for one, other in itertools.pairwise(heard))
    assert text.startswith(heard[2])


def place(room: AdmissionQueue, n_characters: int, estimator: LatencyEstimator | None = None):
    return room.place(n_characters, {estimator or LatencyEstimator(seconds=60.0): n_characters})


def test_an_empty_queue_accepts_a_larger_request():
    room = AdmissionQueue(requests=10, characters=10)
    with place(room, 50), pytest.raises(ApiError), place(room, 1):
        pass
    with place(room, 9), place(room, 1), pytest.raises(ApiError), place(room, 1):
        pass
    assert (room.requests, room.characters) == (0, 0)
    room.is_closed = True
    with pytest.raises(ApiError) as refused, place(room, 1):
        pass
    assert refused.value.status == 503


def test_backwards_is_backwards():
    assert backwards([1, 2, 3, 4]) == [1, 4, 3, 2]
