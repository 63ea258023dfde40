"""POST /api/v1/look: the trace of one sentence."""

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


def test_the_trace_shows_the_served_translation(client):
    started = client.post(PATH, json=body()).json()
    assert started["format"] == "heedful-trace"
    assert started["source"]["text"] == "abc"
    served = client.post("/api/v1/translate", json=body()).json()["translations"][0]["candidates"][0]
    assert started["translation"]["text"] == served["text"]
    assert started["translation"]["score"] == pytest.approx(served["score"])


def test_requests_of_the_page(client):
    assert client.post(PATH, json=body(reference="cab")).json()["target"]["kind"] == "reference"
    first = client.post(PATH, json=body()).json()["target"]["ids"][0]
    assert client.post(PATH, json=body(prefix=[first])).json()["target"]["kind"] == "prefix"
    changed = client.post(PATH, json=body(without_heads=[{"kind": "cross", "layer": 0, "head": 1}], masked_words=[0]))
    assert changed.json()["changes"]["masked_words"] == [0]


def test_a_look_counts_as_one_text():
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
def test_messages_for_bad_looks(client, values):
    answer = client.post(PATH, json=body(**values))
    if values == {"q": "…"}:  # a character like any other, here
        assert answer.status_code in (200, 400)
        return
    assert answer.status_code == 400, answer.text
    assert answer.json().keys() == {"error"} and "heedful/" not in answer.text


@contextlib.contextmanager
def held_look(monkeypatch, **limits: float) -> Iterator[tuple[LookRoutes, Service, threading.Event, list[str]]]:
    """Replace looks by ones that wait for an event; return the event and the texts of the started looks."""
    service = Service(Pairs([Pair("en", "fr", tiny_translator())]), echo_service().detector, Limits(**limits))
    looking, gate, started = LookRoutes(service), threading.Event(), []

    def trace(look_body, look_model):
        started.append(look_body.q)
        assert gate.wait(20)
        return "{}"

    monkeypatch.setattr(looking, "_trace", trace)
    yield looking, service, gate, started
    gate.set()


def look_body(q: str) -> LookBody:
    return LookBody(q, "en", "fr")


def test_a_look_of_a_disconnected_client_keeps_its_place_until_it_is_done(monkeypatch):
    async def leave() -> None:
        with held_look(monkeypatch) as (looking, service, gate, started):
            [pair] = service.pairs
            first, second = (asyncio.ensure_future(looking._within_limits(look_body(q), pair)) for q in ("a", "b"))
            while not started:
                await asyncio.sleep(0.01)
            assert service.room.requests == 2
            first.cancel()
            second.cancel()
            await asyncio.wait([first, second])
            await asyncio.sleep(0.05)
            assert (service.room.requests, looking._estimator.work > 0) == (1, True)  # what had not begun is gone
            gate.set()
            while service.room.requests:
                await asyncio.sleep(0.01)
            assert looking._estimator.work == 0 and started == ["a"] and service.room.answered == 0

    asyncio.run(asyncio.wait_for(leave(), 20))


def test_a_late_look_is_answered_at_once_and_loading_is_not_counted(monkeypatch):
    async def late() -> None:
        with held_look(monkeypatch, request_seconds=0.2) as (looking, service, gate, started):
            [pair] = service.pairs
            look_model = looking._model(pair)

            def slow(pair):
                time.sleep(0.4)
                return look_model

            monkeypatch.setattr(looking, "_model", slow)
            with pytest.raises(ApiError, match="too long"):
                await looking._within_limits(look_body("a"), pair)
            assert started == ["a"] and service.room.requests == 1  # it was looked at, after it was loaded
            gate.set()
            while service.room.requests:
                await asyncio.sleep(0.01)
            assert await looking._within_limits(look_body("b"), pair) == "{}"

    asyncio.run(asyncio.wait_for(late(), 20))
