"""The API below /api/v1: scores, n-best, alignments, streams."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import MappingProxyType

import pytest
from starlette.testclient import TestClient

from echo_engine import tokenizers
from echo_service import HeldEngine, echo_service, echo_translator
from heedful.decoding.search.callback import SearchCallback
from heedful.decoding.search.request import Hypothesis, Request
from heedful.decoding.search.settings import SearchSettings
from heedful.serving.app import make_app
from heedful.serving.limits import Limits
from heedful.serving.model_registry import Pair, Pairs
from heedful.serving.service import Service
from tiny_translator import tiny_translator

PATH = "/api/v1/translate"


def translate_texts(translator, texts, settings, *, is_wanted=lambda index: True, listeners=MappingProxyType({})):
    """Translate as the batcher does, with listeners and disconnecting clients."""
    block = translator.translate_block(
        texts, settings, should_stop=lambda index: not is_wanted(index), on_partial=listeners
    )
    return list(block.outputs)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(make_app(echo_service())) as one:
        yield one


def body(**values: object) -> dict[str, object]:
    return {"q": "abc", "source": "en", "target": "fr"} | values


def events(text: str) -> list[tuple[str, dict[str, object]]]:
    results = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        results.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return results


def test_scores_and_n_best(client):
    answer = client.post(PATH, json=body(q=["abc", "xyz"], beam=3, n_best=2, alignment=True)).json()
    first = answer["translations"][0]
    assert [one["text"] for one in first["candidates"]] == ["cba", "cb"]
    assert [one["score"] for one in first["candidates"]] == [0.0, -1.0]
    assert first["candidates"][0]["tokens"] == ["▁", "c", "b", "a"]
    assert first["candidates"][0]["alignment"] == [[0, 0], [1, 1], [2, 2], [3, 3]]
    assert first["source_tokens"] == ["▁", "a", "b", "c"]
    assert "detected" not in first
    assert answer["translations"][1]["candidates"][0]["text"] == "zyx"


def test_alignment_only_if_requested(client):
    assert "alignment" not in client.post(PATH, json=body()).json()["translations"][0]["candidates"][0]


def test_auto(client):
    text = "The weather is nice today and we are going to the lake."
    assert client.post(PATH, json=body(q=text, source="auto")).json()["translations"][0]["detected"]["language"] == "en"


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"beam": 9}, "beam parameter must be <= 8"),
        ({"beam": 10**9}, "beam parameter must be <= 8"),
        ({"beam": 2, "n_best": 3}, "n_best parameter must be <= 2"),
        ({"beam": 0}, "$.beam"),
        ({"max_len": 513}, "max_len parameter must be <= 512"),
        ({"length_penalty": 11}, "$.length_penalty"),
        ({"beam": "5"}, "$.beam"),
        ({"bean": 5}, "bean"),
        ({"q": ""}, "missing q"),
        ({"q": []}, "missing q"),
        ({"q": ["a", 3]}, "$.q"),
        ({"source": "zz"}, "zz is not supported"),
        ({"source": "fr", "target": "de"}, "German (de)"),
        ({"format": "pdf"}, "$.format"),
        ({"format": "html", "n_best": 2}, "n_best parameter is for plain text only"),
        ({"format": "html", "alignment": True}, "alignment parameter is for plain text only"),
    ],
)
@pytest.mark.parametrize("path", [PATH, f"{PATH}/stream"])
def test_errors_name_the_field(client, values, words, path):
    answer = client.post(path, json=body(**values))
    assert answer.status_code == 400
    assert words in answer.json()["error"]


class Doubting(HeldEngine):
    """Scores fall with the length of a text; texts with an x are cut off."""

    def search(
        self, requests: Sequence[Request], settings: SearchSettings, *, callback: SearchCallback | None = None
    ) -> list[list[Hypothesis]]:
        x = tokenizers().source.id_of("x")
        return [
            [replace(one, score=-2.0 * len(one.ids), normalized_score=-1.0 * len(one.ids), complete=x not in one.ids)]
            for [one] in super().search(requests, settings)
        ]


@pytest.mark.parametrize("texts", [["abc", "de f", "…"], ["abc", "x"], ["…"], []])
def test_the_score_of_html_is_the_sum_of_its_texts(texts):
    page = "".join(f"<p>{text.replace('f', '<b>f</b>')}</p>" for text in texts) + "<hr>"
    with TestClient(make_app(echo_service(Doubting()))) as client:
        answers = client.post(PATH, json=body(q=[*texts, "a"])).json()["translations"]
        [answer] = client.post(PATH, json=body(q=page, format="html")).json()["translations"]
    parts = [one["candidates"][0] for one in answers[:-1]]  # the last is there since there must be one
    [results] = answer["candidates"]
    assert results["score"] == sum(part["score"] for part in parts)
    assert results["normalized_score"] == sum(part["normalized_score"] for part in parts)
    assert results["complete"] == all(part["complete"] for part in parts)
    assert results["complete"] == ("x" not in texts) and (results["score"] < 0) == ("abc" in texts)


def test_missing_fields_and_bad_json(client):
    assert "source" in client.post(PATH, json={"q": "a"}).json()["error"]
    for content in (b"", b"[", b"[]", b"\xff", b"[" * 10_000):
        assert client.post(PATH, content=content).status_code == 400


def test_a_stream_ends_with_the_answer_of_a_plain_request(client):
    plain = client.post(PATH, json=body(q=["abc", "xyz"])).json()["translations"]
    answer = client.post(f"{PATH}/stream", json=body(q=["abc", "xyz"]))
    assert answer.headers["content-type"].startswith("text/event-stream")
    results = events(answer.text)
    assert [name for name, _ in results] == ["translation", "translation", "done"]
    assert [data["answer"] for _, data in results[:2]] == plain


def test_a_stream_sends_partial_texts():
    pairs = Pairs([Pair("en", "fr", tiny_translator())])
    with TestClient(make_app(Service(pairs, echo_service().detector, Limits()))) as client:
        results = events(client.post(f"{PATH}/stream", json=body(q="abc", max_len=12)).text)
    names = [name for name, _ in results]
    assert names[-2:] == ["translation", "done"]
    assert names[:-2] and set(names[:-2]) == {"partial"}


@pytest.mark.parametrize("make", [lambda: echo_translator(), tiny_translator], ids=["whole pieces", "torch"])
def test_a_text_of_several_segments_is_streamed_segment_by_segment(make):
    """Every engine streams; CTranslate2 streams whole segments."""
    translator, settings = make(), SearchSettings(beam=2, max_len=12)
    text = "\n".join("abcdefghijk")
    partials: list[str] = []
    results = translate_texts(translator, [text, "xyz"], settings, listeners={0: partials.append})
    assert [one[0].text for one in results] == [
        one[0].text for one in translator.search([text, "xyz"], beam=2, max_len=12)
    ]
    lines = results[0][0].text.split("\n")
    wholes = ["\n".join(lines[:n]) for n in (1, 3, 7)]  # after turns of one, two and four
    assert [one for one in partials if one in wholes][-3:] == wholes or partials == wholes
    assert len(partials) > 3 or translator.engine.name != "torch"
    silent = translate_texts(translator, [text], settings)
    assert silent[0][0].text == results[0][0].text


def test_the_default_engine_streams_segments(client):
    results = events(client.post(f"{PATH}/stream", json=body(q="abc\n\n def\nghi\njkl")).text)
    names = [name for name, _ in results]
    assert names[-2:] == ["translation", "done"] and "partial" in names
    whole = results[-2][1]["answer"]["candidates"][0]["text"]
    assert whole == "cba\n\n fed\nihg\nlkj"
    assert results[0][1]["text"] in ("cba", "cba\n\n fed\nihg")


def test_a_search_in_rounds_drops_disconnected_clients():
    engine = HeldEngine()
    partials: list[str] = []
    text = "\n".join("abcdefghijk")
    [left] = translate_texts(
        echo_translator(engine),
        [text],
        SearchSettings(beam=1),
        is_wanted=lambda _: not partials,
        listeners={0: partials.append},
    )
    assert left == [] and partials == ["a"] and len(engine.asked) == 1


def test_a_rejected_stream_has_an_error_status():
    """The request is rejected before the stream begins, with the usual status and headers."""
    service = echo_service()
    with TestClient(make_app(service)) as client:
        for path in (PATH, f"{PATH}/stream"):
            service.room.requests += service.room.max_requests
            for source in ("en", "auto"):
                answer = client.post(path, json=body(source=source))
                assert answer.status_code == 429 and int(answer.headers["retry-after"]) >= 1
            service.room.requests -= service.room.max_requests
        assert client.post(f"{PATH}/stream", json=body(q="…")).status_code == 200  # nothing to search for
        service.drain()
        for path in (PATH, f"{PATH}/stream"):
            answer = client.post(path, json=body())
            assert answer.status_code == 503 and int(answer.headers["retry-after"]) >= 1
        assert service.metrics.requests[f"{PATH}/stream", 429] == 2


def test_a_search_with_attention_can_be_streamed():
    translator = tiny_translator()
    settings = SearchSettings(beam=2, attention=True, max_len=12)
    partials: list[str] = []
    watched = translate_texts(translator, ["abc", "ab"], settings, listeners={0: partials.append})
    assert watched == translator.search(["abc", "ab"], beam=2, attention=True, max_len=12)
    assert watched[0][0].alignment and len(partials) > 1
    checked: list[int] = []

    def is_wanted(number: int) -> bool:
        checked.append(number)
        return number != 1 or checked.count(1) < 3  # gone after two steps

    left = translate_texts(translator, ["abc", "ab"], settings, is_wanted=is_wanted)
    assert left[0][0].text == watched[0][0].text and left[1] == [] and checked.count(1) < 8 < checked.count(0)
