"""Limits, keys, security headers, logs and metrics: hostile requests and their answers."""

import io
import logging
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from bad_requests import BAD_MARKUP, TOO_MUCH
from echo_service import KEY, HeldEngine, echo_service
from heedful.cli.serve import is_loopback
from heedful.errors import UserError
from heedful.serving.app import make_app
from heedful.serving.auth import Keys, add_new_key, hash_key, read_keys
from heedful.serving.errors import ApiError
from heedful.serving.limits import Limits, RateLimiter
from heedful.serving.routes.static import read_page

JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    service = echo_service()
    with TestClient(make_app(service)) as one:
        while not service.is_warm:  # who asks for much is let in when nobody else waits
            time.sleep(0.01)
        yield one


@pytest.mark.parametrize("body", BAD_MARKUP.values(), ids=BAD_MARKUP)
def test_bad_markup_is_read_quickly(client, body):
    started = time.process_time()
    assert client.post("/translate", content=body, headers=JSON).status_code == 200
    assert time.process_time() - started < 5.0  # a second on a busy machine; with the square of its length, minutes


@pytest.mark.parametrize("body", TOO_MUCH.values(), ids=TOO_MUCH)
@pytest.mark.parametrize("path", ["/translate", "/api/v1/translate", "/detect"])
def test_large_requests_are_rejected_at_once(client, path, body):
    if path == "/translate" and b"beam" in body:
        pytest.skip("not one of its fields")
    if path == "/detect" and b'"q": "a"' in body:
        pytest.skip("not one of its fields")
    times = []
    while not times or (min(times) > 0.05 and len(times) < 4):
        started = time.process_time()
        answer = client.post(path, content=body, headers=JSON)
        times.append(time.process_time() - started)
    assert answer.status_code in (400, 413)
    assert answer.json().keys() == {"error"} and len(answer.text) < 500
    assert min(times) < 0.05


def test_a_body_without_a_length_is_limited(client):
    chunks = (b"x" * 65_536 for _ in range(100))
    assert client.post("/translate", content=chunks, headers=JSON).status_code == 413


def test_headers_are_bounded(client):
    many = {f"x-{number}": "1" for number in range(101)}
    assert client.get("/health", headers=many).status_code == 431
    assert client.get("/health", headers={"x": "y" * 17_000}).status_code == 431


def test_every_response_has_the_security_headers(client):
    for answer in (client.get("/"), client.get("/nope"), client.post("/translate", json={}), client.get("/spec")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert "server" not in answer.headers


def test_no_path_leads_out_of_the_page(tmp_path: Path):
    page = tmp_path / "page"
    (page / "parts").mkdir(parents=True)
    (page / "index.html").write_text("<p>page</p>")
    (page / "parts" / "a.js").write_text("1")
    (page / "notes.txt").write_text("not of the page")
    (tmp_path / "secret.js").write_text("secret")
    with TestClient(make_app(echo_service(), page=read_page(page))) as client:
        assert client.get("/").text == "<p>page</p>"
        assert client.get("/").headers["content-type"] == "text/html; charset=utf-8"
        script = client.get("/parts/a.js")
        assert script.text == "1" and script.headers["content-type"].startswith("text/javascript")
        assert client.get("/parts/a.js", headers={"If-None-Match": script.headers["etag"]}).status_code == 304
        for path in ("/notes.txt", "/../secret.js", "/..%2fsecret.js", "/parts/../../secret.js", "/%2e%2e/secret.js"):
            assert client.get(path).status_code == 404, path


def test_no_key_and_no_text_is_logged(caplog):
    words = "quotes the SECRET text"

    class Broken(HeldEngine):
        def search(self, requests, settings, **_):
            if any(len(request.source) == len("▁SECRET") for request in requests):
                raise RuntimeError(words)
            return super().search(requests, settings)

    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    logging.getLogger().addHandler(handler)
    caplog.set_level(logging.DEBUG)
    try:
        keys = Keys([hash_key(KEY)])
        with TestClient(make_app(echo_service(Broken(), keys=keys)), raise_server_exceptions=False) as client:
            values = {"source": "en", "target": "fr", "api_key": KEY}
            statuses = [
                client.post("/translate", json={"q": "SECRET", **values}).status_code,
                client.post("/translate", params={"q": "SECRETS", **values}).status_code,
                client.post("/translate", json={"q": "SECRET", **values, "api_key": KEY + "x"}).status_code,
                client.get(f"/SECRET?api_key={KEY}").status_code,
                client.get("/metrics", headers={"Authorization": f"Bearer {KEY}"}).status_code,
            ]
            metrics = client.get("/metrics", headers={"Authorization": f"Bearer {KEY}"}).text
    finally:
        logging.getLogger().removeHandler(handler)
    assert statuses == [500, 200, 403, 404, 200]
    output = "".join(
        line for line in stream.getvalue().splitlines() if "HTTP Request" not in line
    )  # the client's own log
    for secret in (KEY, "SECRET", "testclient"):
        assert secret not in output and secret not in metrics
    assert "RuntimeError at" in output and "POST /translate 500" in output


def test_metrics_have_prometheus_format(client):
    client.post("/translate", json={"q": ["a", "b"], "source": "en", "target": "fr"})
    lines = client.get("/metrics").text.splitlines()
    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}
    assert values['heedful_requests_total{route="/translate",status="200"}'] >= 1
    assert values["heedful_texts_total"] >= 2
    assert values["heedful_queue_requests"] == 0
    assert values['heedful_request_seconds_bucket{route="/translate",le="+Inf"}'] >= 1
    assert values['heedful_batches_total{pair="en-fr"}'] >= 1
    kinds = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert len(kinds) == len(set(kinds))


def test_ready_only_after_a_first_translation():
    engine = HeldEngine()
    engine.gate.clear()
    service = echo_service(engine)
    with TestClient(make_app(service)) as client:
        assert client.get("/health").status_code == 200
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()) == (503, {"status": "starting"})
        engine.gate.set()
        for _ in range(100):
            if client.get("/ready").status_code == 200:
                break
            time.sleep(0.02)
        assert client.get("/ready").json() == {"status": "ready"}
        service.room.requests = 120
        assert client.get("/ready").json() == {"status": "busy"}
        service.room.requests = 0
        service.drain()
        assert client.get("/ready").json() == {"status": "stopping"}


def test_keys_are_kept_as_hashes(tmp_path: Path):
    path = tmp_path / "keys"
    first, second = add_new_key(path), add_new_key(path)
    text = path.read_text()
    assert first not in text and second not in text
    assert path.stat().st_mode & 0o077 == 0
    keys = Keys(read_keys(path))
    assert keys.find(first) and keys.find(second) and keys.find(first) != keys.find(second)
    for wrong in ("", first[:-1], first + "x", first.swapcase(), "é" * 20, "\ud800"):
        assert keys.find(wrong) is None
    path.write_text(text + "not a hash SECRET\n")
    with pytest.raises(UserError, match="line 3") as error:
        read_keys(path)
    assert "SECRET" not in str(error.value)
    with pytest.raises(UserError, match="16 to 256"):
        hash_key("short")


@pytest.mark.parametrize("end", ["", "\n", "\n\n"])
def test_a_new_key_has_a_line_of_its_own(end: str, tmp_path: Path):
    """A new key starts a new line, also if the last line of the file has no line end."""
    path, old = tmp_path / "keys", "an-old-key-0123456789"
    for last in ("# my keys", hash_key(old, name="old").line().rstrip("\n")):
        path.write_text(last + end)
        keys = [add_new_key(path), add_new_key(path)]
        first, *new = path.read_text().rstrip("\n").split("\n")
        assert first == last and len([line for line in new if line]) == 2
        found = Keys(read_keys(path))
        assert all(map(found.find, keys)) and bool(found.find(old)) == last.startswith("sha256")


def test_a_rate_is_exact():
    now = 0.0
    rate = RateLimiter(60, clock=lambda: now)
    accepted = 0
    for tick in range(3_000):  # ten a second, five minutes
        now = tick / 10
        try:
            rate.spend("one", 1)
            accepted += 1
        except ApiError as refusal:
            assert refusal.retry_after == 1 and refusal.status == 429
    assert abs(accepted - (60 + 299)) <= 1
    rate.spend("another", 60)  # has its own


def test_invalid_limits_are_errors():
    for wrong in ({"texts": 0}, {"receive_seconds": 0.0}, {"alternatives": 8}, {"requests_per_minute": -1}):
        with pytest.raises(UserError, match=next(iter(wrong))):
            Limits(**wrong)


def test_loopback_addresses():
    assert all(map(is_loopback, ("127.0.0.1", "127.1.2.3", "::1", "localhost")))
    assert not any(map(is_loopback, ("0.0.0.0", "::", "192.168.0.1", "example.org", "")))
