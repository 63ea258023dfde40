"""POST /api/v1/look: the trace of one sentence, as the page asks for it."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from echo_service import echo_service
from heedful.serving.app import make_app
from heedful.serving.errors import ApiError
from heedful.serving.limits import Limits
from heedful.serving.model_registry import Pair, Pairs
from heedful.serving.routes.look import LookBody, LookRoutes
from heedful.serving.service import Service
from tiny_translator import tiny_translator

PATH = "/api/v1/look"


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    service = Service(Pairs([Pair("en", "fr", tiny_translator())]), echo_service().detector, beam=2)
    with TestClient(make_app(service)) as one:
        yield one


def body(**values: object) -> dict[str, object]:
    return {"q": "abc", "source": "en", "target": "fr"} | values


def test_a_trace_is_of_the_translation_that_is_served(client):
    seen = client.post(PATH, json=body()).json()
    assert seen["format"] == "heedful-trace"
    assert seen["source"]["text"] == "abc"
    served = client.post("/api/v1/translate", json=body()).json()["translations"][0]["candidates"][0]
    assert seen["translation"]["text"] == served["text"]
    assert seen["translation"]["score"] == pytest.approx(served["score"])


def test_what_the_page_asks_for(client):
    assert client.post(PATH, json=body(reference="cab")).json()["target"]["kind"] == "reference"
    first = client.post(PATH, json=body()).json()["target"]["ids"][0]
    assert client.post(PATH, json=body(prefix=[first])).json()["target"]["kind"] == "prefix"
    changed = client.post(PATH, json=body(without_heads=[{"kind": "cross", "layer": 0, "head": 1}], masked_words=[0]))
    assert changed.json()["changes"]["masked_words"] == [0]


def test_a_look_is_one_text_whatever_it_is_compared_with():
    service = Service(Pairs([Pair("en", "fr", tiny_translator())]), echo_service().detector, Limits(texts=1), beam=2)
    with TestClient(make_app(service)) as one:
        assert one.post(PATH, json=body()).status_code == 200
        assert one.post(PATH, json=body(reference="cab")).status_code == 200
        assert one.post(PATH, json=body(reference="c" * 6_000)).status_code == 400


@pytest.mark.parametrize(
    "values",
    [
        {"q": ""},
        {"q": "x" * 6_000},
        {"q": "…"},
        {"prefix": [-1]},
        {"prefix": [10**8]},
        {"prefix": [4], "reference": "a"},
        {"without_heads": [{"kind": "cross", "layer": 7, "head": 0}]},
        {"masked_words": [99]},
        {"beam": 9},
        {"target": "en"},
        {"target": "zz"},
        {"path": "/etc/passwd"},
    ],
)
def test_what_cannot_be_looked_at_is_said(client, values):
    answer = client.post(PATH, json=body(**values))
    if values == {"q": "…"}:  # a character like any other, here
        assert answer.status_code in (200, 400)
        return
    assert answer.status_code == 400, answer.text
    assert answer.json().keys() == {"error"} and "heedful/" not in answer.text


@contextlib.contextmanager
def held_look(monkeypatch, **limits: float) -> Iterator[tuple[LookRoutes, Service, threading.Event, list[str]]]:
    """A look takes until the event is set; with what was looked at."""
    service = Service(Pairs([Pair("en", "fr", tiny_translator())]), echo_service().detector, Limits(**limits))
    looking, gate, seen = LookRoutes(service), threading.Event(), []

    def trace(asked, look_model):
        seen.append(asked.q)
        assert gate.wait(20)
        return "{}"

    monkeypatch.setattr(looking, "_trace", trace)
    yield looking, service, gate, seen
    gate.set()


def asked(q: str) -> LookBody:
    return LookBody(q, "en", "fr")


def test_a_look_that_nobody_waits_for_keeps_its_place_until_its_thread_is_done(monkeypatch):
    async def leave() -> None:
        with held_look(monkeypatch) as (looking, service, gate, seen):
            [pair] = service.pairs
            first, second = (asyncio.ensure_future(looking._within_limits(asked(q), pair)) for q in ("a", "b"))
            while not seen:
                await asyncio.sleep(0.01)
            assert service.room.requests == 2
            first.cancel()
            second.cancel()
            await asyncio.wait([first, second])
            await asyncio.sleep(0.05)
            assert (service.room.requests, looking._backlog.work > 0) == (1, True)  # what had not begun is gone
            gate.set()
            while service.room.requests:
                await asyncio.sleep(0.01)
            assert looking._backlog.work == 0 and seen == ["a"] and service.room.answered == 0

    asyncio.run(asyncio.wait_for(leave(), 20))


def test_a_late_look_is_answered_at_once_and_loading_takes_no_time_of_it(monkeypatch):
    async def late() -> None:
        with held_look(monkeypatch, request_seconds=0.2) as (looking, service, gate, seen):
            [pair] = service.pairs
            look_model = looking._model(pair)

            def slow(pair):
                time.sleep(0.4)
                return look_model

            monkeypatch.setattr(looking, "_model", slow)
            with pytest.raises(ApiError, match="too long"):
                await looking._within_limits(asked("a"), pair)
            assert seen == ["a"] and service.room.requests == 1  # it was looked at, after it was loaded
            gate.set()
            while service.room.requests:
                await asyncio.sleep(0.01)
            assert await looking._within_limits(asked("b"), pair) == "{}"

    asyncio.run(asyncio.wait_for(late(), 20))
