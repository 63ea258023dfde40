"""Random valid and invalid requests made from /spec: no server error, and every answer as documented."""

import functools
import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2 as httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies

from echo_service import echo_service, running
from heedful.serving.app import make_app
from heedful.serving.model_registry import Pair, Pairs
from heedful.serving.openapi import make_spec
from heedful.serving.routes.compat import CompatApis
from heedful.serving.service import Service
from server_process import wait_until
from tiny_translator import tiny_translator

schemathesis = pytest.importorskip("schemathesis", reason="needs heedful[dev]")

N_EXAMPLES = int(os.environ.get("HEEDFUL_SPEC_EXAMPLES", "15"))  # `make serve-test` takes 1,000
CHECKS = (
    schemathesis.checks.not_a_server_error,
    schemathesis.checks.status_code_conformance,
    schemathesis.checks.content_type_conformance,
    schemathesis.checks.response_schema_conformance,
)
LOOK = "/api/v1/look"
COUNTS = os.environ.get("HEEDFUL_SPEC_COUNTS")  # a file: how many requests were made of each path, and their statuses


def tiny_service() -> Service:
    return Service(Pairs([Pair("en", "fr", tiny_translator())]), echo_service().detector)


def requests_of(service: Service):
    schema = schemathesis.openapi.from_dict(make_spec(service.limits, service.pairs.codes))
    modes = schemathesis.GenerationMode
    schema.config.generation.update(modes=[modes.POSITIVE, modes.NEGATIVE], allow_x00=True)
    return schema


@pytest.fixture(scope="module", autouse=True)
def counts() -> Iterator[dict[str, Counter[int]]]:
    """Count the statuses of each path."""
    found: dict[str, Counter[int]] = {}
    yield found
    if COUNTS:
        Path(COUNTS).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


@pytest.fixture(scope="module")
def echo() -> Iterator[str]:
    service = echo_service(queue_requests=1_000)
    with running(service) as (url, _):
        wait_until(lambda: service.is_warm)
        yield url


@pytest.fixture(scope="module")
def tiny() -> Iterator[str]:
    with running(tiny_service()) as (url, _):
        yield url


def check(case, url: str, counts: dict[str, Counter[int]]) -> None:
    response = case.call(base_url=url)
    counts.setdefault(case.path, Counter())[response.status_code] += 1
    case.validate_response(response, checks=CHECKS)
    assert "Traceback" not in response.text and "heedful/" not in response.text


phases = [Phase.explicit, Phase.generate]
some = settings(max_examples=N_EXAMPLES, suppress_health_check=list(HealthCheck), phases=phases)


@requests_of(echo_service()).exclude(path=[LOOK, "/ready"]).parametrize()
@some
def test_any_request_gets_a_documented_answer(case, echo, counts):
    check(case, echo, counts)


@requests_of(tiny_service()).include(path=LOOK).parametrize()
@some
def test_any_look_gets_a_documented_answer(case, tiny, counts):
    check(case, tiny, counts)


@pytest.mark.parametrize("path", ["/languages", "/health", "/ready", "/frontend/settings", "/spec"])
@settings(some, deadline=None)
@given(
    query=strategies.dictionaries(strategies.text(max_size=20), strategies.text(max_size=50), max_size=5),
    headers=strategies.dictionaries(
        strategies.text("abcdefghijklmnop-", min_size=1, max_size=20).map(lambda name: f"x-{name}"),
        strategies.text(strategies.characters(min_codepoint=32, max_codepoint=126), max_size=50).map(str.strip),
        max_size=5,
    ),
)
def test_paths_without_parameters_ignore_the_request(path, query, headers, echo, counts):
    """These paths have no parameters that schemathesis could vary."""
    response = httpx.get(f"{echo}{path}", params=query, headers=headers)
    counts.setdefault(path, Counter())[response.status_code] += 1
    assert response.status_code == 200 and response.json() == plain_answer(f"{echo}{path}")


@functools.cache
def plain_answer(url: str) -> object:
    return httpx.get(url).json()


def test_most_random_requests_that_fit_the_spec_are_answered():
    """The spec has the limits; otherwise random requests would be rejected before they reach the service."""
    made = make_spec(echo_service().limits, ["en"])
    fields = made["components"]["schemas"]["TranslateBody"]["properties"]
    limits = echo_service().limits
    assert fields["beam"]["maximum"] == fields["n_best"]["maximum"] == limits.beam
    assert fields["max_len"]["maximum"] == limits.max_len
    assert fields["q"]["oneOf"][0]["maxLength"] == limits.characters
    assert fields["q"]["oneOf"][1]["maxItems"] == limits.texts


def test_the_spec_names_every_route():
    service = echo_service()
    routes = {route.path for route in make_app(service).routes}
    others = {route.path for route in CompatApis(service).routes()}  # their owners describe them
    hidden = others | {"/", "/spec", "/docs", "/docs.css", "/metrics", "/suggest", "/translate_file"}
    assert set(make_spec(service.limits, service.pairs.codes)["paths"]) == routes - hidden
