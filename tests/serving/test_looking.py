"""POST /api/v1/look: the trace of one sentence, as the page asks for it."""

from collections.abc import Iterator

import pytest
from served import echo_service
from starlette.testclient import TestClient
from test_batcher import tiny_translator

from heedful.serving.app import make_app
from heedful.serving.pairs import Pair, Pairs
from heedful.serving.service import Service

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
