"""CTranslate2 in the server: every answer equals the offline one, in any batch."""

import asyncio
import itertools
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from ct2_models import count_conversions, make_engine, make_model
from echo_engine import tokenizers
from echo_service import detector, running
from heedful.decoding.engines.ctranslate2_tuning import Speed
from heedful.decoding.translator import Translator
from heedful.models.model_info import SourceLimit
from heedful.serving.app import make_app
from heedful.serving.model_registry import Pair, Pairs, open_pair
from heedful.serving.service import Service
from real_server import make_folder
from serve_load import differing, many_texts, random_text

N_TEXTS = 300


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    size = tokenizers().source.vocab_size
    model = make_model(source_vocab_size=size, target_vocab_size=size)
    folder: Path = tmp_path_factory.mktemp("ct2") / "model"
    engine = make_engine(model, folder, speed=Speed(inter=2, intra=1, batch=200, beam_batch=200))
    return Translator(engine, tokenizers(), reach=SourceLimit(120))


@pytest.mark.parametrize("beam", [1, 4])
def test_answers_equal_those_of_the_engine_offline(translator, beam):
    draw = random.Random(beam)
    texts = [random_text(draw) for _ in range(N_TEXTS)]
    offline = dict(zip(texts, (best[0] for best in translator.search(texts, beam=beam)), strict=True))
    assert len({one.text for one in offline.values()}) > N_TEXTS // 10  # it does not say the same to everybody
    service = Service(Pairs([Pair("en", "fr", translator)]), detector, beam=beam)
    with running(service) as (url, _):
        results = asyncio.run(many_texts(url, texts, n_clients=20))
    assert differing(results, offline) == []
    assert service._batchers["en-fr"].work.batches < N_TEXTS // 3  # they were merged


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("extremes") / "model")


@pytest.fixture(scope="module", params=[("ctranslate2", "float32"), ("auto", "int8")], ids=["alone", "int8"])
def client(request: pytest.FixtureRequest, folder: Path) -> Iterator[TestClient]:
    """With --engine ctranslate2 or --compute int8, torch does not take over unsupported settings."""
    engine, compute = request.param
    with pytest.MonkeyPatch.context() as patched:
        count_conversions(patched)  # in this process, which is faster
        pair = open_pair(str(folder), engine=engine, compute=compute)
    with TestClient(make_app(Service(Pairs([pair]), detector))) as one:
        yield one


PATH = "/api/v1/translate"
ASKED = {"q": "A dog runs.\nTwo dogs sleep.", "source": "en", "target": "de"}


@pytest.mark.parametrize("path", [PATH, f"{PATH}/stream"])
def test_unsupported_settings_are_400(client, path):
    answer = client.post(path, json=ASKED | {"beam": 5, "length_penalty": 6})
    assert answer.status_code == 400
    assert "length penalty" in answer.json()["error"]
    assert "heedful" not in answer.text and "--" not in answer.text  # nothing that only who runs the server can use
    for can in ({"beam": 5, "length_penalty": 5}, {"beam": 1, "length_penalty": 6}):
        assert client.post(path, json=ASKED | can).status_code == 200


def test_the_extreme_numbers_of_the_spec_are_accepted_or_400(client):
    spec = client.get("/spec").json()
    n_asked = 0
    for path, methods in spec["paths"].items():
        if "post" not in methods:
            continue
        schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        extremes = dict(numbers_of(schema, spec))
        for values in itertools.product(*extremes.values()):
            body = ASKED | dict(zip(extremes, values, strict=True))
            answer = client.post(path, json=body if path != "/detect" else {"q": "A dog."})
            assert answer.status_code in (200, 400), (path, body, answer.text)
            assert "event: error" not in answer.text
            n_asked += 1
    assert n_asked > 40  # there is something to try


def numbers_of(schema: dict[str, Any], spec: dict[str, Any]) -> Iterator[tuple[str, list[object]]]:
    """Yield the fields of a body that contain numbers, each with its smallest and its largest value."""
    for name, field in resolved(schema, spec)["properties"].items():
        results = values_of(field, spec)
        if results:
            yield name, results


def values_of(schema: dict[str, Any], spec: dict[str, Any]) -> list[Any]:
    schema = resolved(schema, spec)
    for choice in schema.get("anyOf", []):
        if results := values_of(choice, spec):
            return results
    kinds = schema.get("type", [])
    if "integer" in kinds or "number" in kinds:
        return [schema["minimum"], schema.get("maximum", 10**9)]
    if "array" in kinds:
        return [[one] for one in values_of(schema["items"], spec)]
    if "object" in kinds:
        fields = dict(numbers_of(schema, spec))
        return [
            {"kind": "cross"} | {name: results[end] for name, results in fields.items()} for end in (0, -1) if fields
        ]
    return []


def resolved(schema: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    name = schema.get("$ref", "").rpartition("/")[2]
    return spec["components"]["schemas"][name] if name else schema
