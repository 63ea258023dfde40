"""GET /docs: the API description as a page that follows the content security policy."""

import html
import json
import re
import shlex
from collections.abc import Iterator
from html.parser import HTMLParser

import pytest
from starlette.testclient import TestClient

from echo_service import echo_service
from heedful.serving.app import make_app
from heedful.serving.middleware import POLICY
from heedful.serving.openapi import manual_html


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(make_app(echo_service())) as one:
        yield one


class Reader(HTMLParser):
    """Collects the tags with their attributes, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words += data


def test_the_page_names_every_path_with_its_method_and_fields(client):
    answer = client.get("/docs")
    assert answer.status_code == 200 and answer.headers["content-type"] == "text/html; charset=utf-8"
    words = Reader(answer.text).words
    spec = client.get("/spec").json()
    for path, methods in spec["paths"].items():
        for method in methods:
            assert f"{method.upper()} {path}\n" in words
    for name in (*spec["components"]["schemas"]["TranslateBody"]["properties"], "alternatives", "masked_words"):
        assert f"{name}" in words
    assert "integer, 1 to 8" in words and "one of auto, de, en, fr, zh-Hans; required" in words


def test_the_page_follows_the_content_security_policy(client):
    answer = client.get("/docs")
    assert answer.headers["content-security-policy"] == POLICY
    tags = Reader(answer.text).tags
    assert not {tag for tag, _ in tags} & {"script", "style", "img", "iframe", "form"}
    assert not [one for _, one in tags if "style" in one or any(name.startswith("on") for name in one)]
    links = [one["href"] for _, one in tags if "href" in one]
    assert links == ["docs.css", "spec"]
    assert [client.get(f"/{link}").status_code for link in links] == [200, 200]
    assert client.get("/docs.css").headers["content-type"].startswith("text/css")


def test_the_examples_of_the_page_work(client):
    examples = [
        shlex.split(html.unescape(one)) for one in re.findall(r"<pre>(curl .*)</pre>", client.get("/docs").text)
    ]
    assert len(examples) == len(client.get("/spec").json()["paths"])
    for _, *options, address in examples:
        path = address.removeprefix("http://127.0.0.1:8000")
        answer = client.post(path, json=json.loads(options[-1])) if options else client.get(path)
        if path != "/api/v1/look":  # the echo has no inside
            assert answer.status_code in (200, 503 if path == "/ready" else 200), (path, answer.text)


def test_texts_of_the_spec_are_escaped():
    info = {"title": "<b>", "version": "&", "description": "<script>"}
    acts = {"/<i>": {"get": {"summary": "<u>", "responses": {"200": {"description": "<s>"}}}}}
    read = Reader(manual_html({"info": info, "paths": acts}, {}))
    assert not {tag for tag, _ in read.tags} & {"b", "script", "i", "u", "s"}
    assert all(one in read.words for one in ("<b> &", "<script>", "/<i>", "<u>", "<s>"))
