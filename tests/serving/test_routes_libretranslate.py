"""LibreTranslate's contract, endpoint by endpoint and error by error."""

from collections.abc import Iterator

import httpx2 as httpx
import pytest
from starlette.testclient import TestClient

from echo_service import KEY, HeldEngine, echo_service
from heedful.serving.app import make_app
from heedful.serving.auth import Keys, hash_key
from server_process import wait_until


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(make_app(echo_service(texts=4, characters=100))) as one:
        yield one


@pytest.fixture(scope="module")
def locked() -> Iterator[TestClient]:
    with TestClient(make_app(echo_service(keys=Keys([hash_key(KEY)])))) as one:
        yield one


def ask(client: TestClient, **values: object) -> httpx.Response:
    return client.post("/translate", json={"q": "Hello", "source": "en", "target": "fr"} | values)


def error(answer: httpx.Response, status: int) -> str:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert answer.json().keys() == {"error"}
    return str(answer.json()["error"])


def test_a_text(client):
    answer = ask(client)
    assert answer.status_code == 200
    assert answer.json() == {"translatedText": "olleH"}


def test_an_array_in_its_order(client):
    assert ask(client, q=["abc", "", "xy!"]).json() == {"translatedText": ["cba", "", "!yx"]}


@pytest.mark.parametrize("place", ["data", "params"])
def test_a_form_and_a_query(client, place):
    values = {"q": "ab\r\ncd", "source": "en", "target": "fr", "alternatives": "1"}
    answer = client.post("/translate", **{place: values})
    assert answer.json() == {"translatedText": "ba\ndc", "alternatives": [answer.json()["alternatives"][0]]}


def test_a_form_may_have_raw_utf_8(client):
    """As `curl -d q="Café"` sends it."""
    for q in ("Café is", "Caf%C3%A9+is"):
        body = f"q={q}&source=en&target=en".encode()
        answer = client.post("/translate", content=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
        assert answer.json() == {"translatedText": "Café is"}
    wrong = client.post("/translate", content=b"q=\xff", headers={"Content-Type": "application/x-www-form-urlencoded"})
    assert error(wrong, 400) == "Invalid request: the form cannot be read"


def test_a_multipart_form(client):
    """As `curl -F` and FormData send it."""
    fields = {"q": "ab\r\nHello", "source": "en", "target": "fr", "alternatives": "1"}
    answer = client.post("/translate", files={name: (None, value) for name, value in fields.items()})
    assert answer.json()["translatedText"] == "ba\nolleH" and len(answer.json()["alternatives"]) == 1
    assert error(client.post("/translate", files={"q": ("a.txt", b"Hello")}), 400)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--x--",
        b"--x\r\nContent-Disposition: form-data; name=q\r\n\r\na\r\n--x--",
        b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na',  # not whole
        b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n\xff\r\n--x--',
        b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\na\r\n' * 101 + b"--x--",
    ],
)
def test_a_bad_multipart_form_is_an_error(client, body):
    answer = client.post("/translate", content=body, headers={"Content-Type": "multipart/form-data; boundary=x"})
    assert error(answer, 400).startswith("Invalid request: ")


def test_other_content_types_of_json(client):
    body = b'{"q": "Hello", "source": "en", "target": "fr"}'
    answer = client.post("/translate", content=body, headers={"Content-Type": "application/vnd.x+json; charset=utf-8"})
    assert answer.json() == {"translatedText": "olleH"}


def test_codes_have_aliases_and_no_case(client):
    for target in ("zh", "ZH-hans", "zh-Hans"):
        assert ask(client, source="DE", target=target).json() == {"translatedText": "olleH"}


def test_auto_returns_the_detected_language(client):
    english = "The weather is nice today and we are going to the lake with our friends."
    french = "Il fait beau et nous allons au lac avec nos amis, bien que ce soit loin."
    one = ask(client, q=english, source="auto").json()
    assert one["translatedText"] == english[::-1]
    assert one["detectedLanguage"].keys() == {"confidence", "language"}
    assert one["detectedLanguage"]["language"] == "en" and one["detectedLanguage"]["confidence"] > 50
    several = ask(client, q=[english, french], source="auto").json()
    assert [results["language"] for results in several["detectedLanguage"]] == ["en", "fr"]
    assert several["translatedText"] == [english[::-1], french]  # the second is already in the target language


def test_signs_and_emoji_are_returned_unchanged(client):
    assert ask(client, q="🙂 … !", source="auto").json() == {
        "translatedText": "🙂 … !",
        "detectedLanguage": {"confidence": 0.0, "language": "en"},
    }


def test_the_same_language_changes_nothing(client):
    assert ask(client, source="en", target="en").json() == {"translatedText": "Hello"}


def test_alternatives_if_requested(client):
    assert ask(client, q="abcd", alternatives=2).json() == {"translatedText": "dcba", "alternatives": ["dcb", "dc"]}
    assert ask(client, q=["abc", "xyz"], alternatives=1).json()["alternatives"] == [["cb"], ["zy"]]
    assert "alternatives" not in ask(client, alternatives=0).json()


def test_html_keeps_its_markup_and_has_no_alternatives(client):
    answer = ask(client, q='<p class="a">Hello <b>you</b></p>', format="html", alternatives=2).json()
    # One sentence, backwards; the engine says that each letter comes from the one at its own place.
    assert answer == {"translatedText": '<p class="a">uoy <b>olleH</b></p>', "alternatives": []}


PART = "word " * 390
LARGE_PAGES = [f"<p>{PART}</p><p>{PART}<b>x</b></p>"] * 20  # texts with and without tags: 39,000 characters each


@pytest.mark.parametrize(
    ("q", "limits"),
    [(LARGE_PAGES, {}), (["<p>a</p><p>b <b>c</b> d</p>"], {"queue_requests": 1})],
    ids=["more than the queue", "a queue of one"],
)
def test_a_request_takes_one_place_in_the_queue(q, limits):
    """The parts of a request must not compete for places in the queue."""
    service = echo_service(**limits)
    with TestClient(make_app(service)) as one:
        wait_until(lambda: service.is_warm)
        before = service.room.accepted
        for _ in range(2):
            answer = ask(one, q=q, format="html")
            assert answer.status_code == 200, answer.text
        assert service.room.accepted - before == service.room.answered - before == 2
        assert service.room.requests == service.room.characters == 0


def test_a_slow_model_accepts_a_large_page_if_the_queue_is_empty():
    service = echo_service()
    with TestClient(make_app(service)) as one:
        wait_until(lambda: service.is_warm)
        estimator = service._batchers["en-fr"].estimator
        page = "<p>The weather is nice today</p><p>and we go to the <b>lake</b>.</p>"
        for others, status in ((0, 200), (1, 429)):
            estimator._took, estimator._done, estimator.work = 1.0, 10.0, others  # seconds, work
            assert ask(one, q=page, format="html").status_code == status


def test_bad_markup_is_translated(client):
    for q in ("a<![<!", "a<![1]>", "a<![ if !IE]>", "a&#" + "1" * 90):
        for source in ("en", "auto"):
            assert ask(client, q=q, format="html", source=source).status_code == 200


def test_text_is_not_unescaped_or_escaped(client):
    assert ask(client, q="a < b & c").json() == {"translatedText": "c & b < a"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"q": None}, "Invalid request: missing q parameter"),
        ({"q": ""}, "Invalid request: missing q parameter"),
        ({"q": []}, "Invalid request: missing q parameter"),
        ({"source": None}, "Invalid request: missing source parameter"),
        ({"target": ""}, "Invalid request: missing target parameter"),
        ({"q": "x" * 101}, "Invalid request: request (101) exceeds text limit (100)"),
        ({"q": ["x"] * 5}, "Invalid request: request (5) exceeds text limit (4)"),
        ({"q": 3}, "Invalid request: q must be a text or an array of texts"),
        ({"q": ["x", {}]}, "Invalid request: q must be a text or an array of texts"),
        ({"alternatives": "many"}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": [1]}, "Invalid request: alternatives parameter is not a number"),
        ({"alternatives": 8}, "Invalid request: alternatives parameter must be <= 7"),
        ({"alternatives": 10**400}, "Invalid request: alternatives parameter must be <= 7"),
        ({"source": "zz"}, "zz is not supported"),
        ({"target": 7}, "7 is not supported"),
        ({"target": "auto"}, "auto is not supported"),
        ({"source": "fr", "target": "de"}, "German (de) is not available as a target language from French (fr)"),
        ({"format": "xyz"}, "xyz format is not supported"),
    ],
)
def test_messages_for_bad_requests(client, values, words):
    assert error(ask(client, **values), 400) == words


@pytest.mark.parametrize("body", [b"[]", b"3", b"{", b"", b"\xff", b'{"q": "\\ud800"}', b'{"q": NaN}'])
def test_a_body_that_is_no_json_object(client, body):
    answer = client.post("/translate", content=body, headers={"Content-Type": "application/json"})
    assert error(answer, 400) == "Invalid JSON format"


def test_keys_are_required_and_checked(locked):
    assert error(ask(locked), 400) == "Please contact the server operator to get an API key"
    for wrong in ("x", KEY.upper(), KEY + "x", KEY[:-1], "x" * 10_000):
        assert error(ask(locked, api_key=wrong), 403) == "Invalid API key"
    assert error(ask(locked, api_key=[KEY]), 403) == "Invalid API key"
    right = [
        ask(locked, api_key=KEY),
        ask(locked, apiKey=KEY),
        locked.post("/translate", data={"q": "Hello", "source": "en", "target": "fr", "api_key": KEY}),
        locked.post(
            "/translate",
            json={"q": "Hello", "source": "en", "target": "fr"},
            headers={"Authorization": f"Bearer {KEY}"},
        ),
    ]
    assert [answer.json() for answer in right] == [{"translatedText": "olleH"}] * len(right)


def test_public_paths_need_no_key(locked):
    for path in ("/languages", "/health", "/frontend/settings", "/spec", "/"):
        assert locked.get(path).status_code == 200
    assert locked.get("/frontend/settings").json()["keyRequired"] is True
    assert error(locked.post("/detect", json={"q": "Hello"}), 400)
    assert error(locked.post("/api/v1/translate", json={"q": "a", "source": "en", "target": "fr"}), 400)
    assert locked.get("/metrics").status_code == 401
    assert locked.get("/metrics", headers={"Authorization": f"Bearer {KEY}"}).status_code == 200


def test_detect(client):
    results = client.post("/detect", json={"q": "Das ist ein ziemlich langer deutscher Satz, nicht wahr?"}).json()
    assert 1 <= len(results) <= 3 and results[0]["language"] == "de"
    assert all(one.keys() == {"confidence", "language"} and 0 <= one["confidence"] <= 100 for one in results)
    assert client.post("/detect", data={"q": "123 …"}).json()[0]["language"]
    assert client.post("/detect", json={"q": "…"}).json() == [{"confidence": 0.0, "language": "en"}]
    assert error(client.post("/detect", json={}), 400) == "Invalid request: missing q parameter"
    assert error(client.post("/detect", json={"q": "x" * 101}), 400)


def test_languages(client):
    assert client.get("/languages").json() == [
        {"code": "de", "name": "German", "targets": ["de", "zh-Hans"]},
        {"code": "en", "name": "English", "targets": ["en", "fr"]},
        {"code": "fr", "name": "French", "targets": ["en", "fr"]},
        {"code": "zh-Hans", "name": "Chinese", "targets": ["zh-Hans"]},
    ]


def test_health_and_settings(client):
    assert client.get("/health").json() == {"status": "ok"}
    assert client.get("/frontend/settings").json() == {
        "charLimit": 100,
        "frontendTimeout": 500,
        "apiKeys": False,
        "keyRequired": False,
        "suggestions": False,
        "filesTranslation": False,
        "supportedFilesFormat": [],
        "language": {"source": {"code": "en", "name": "English"}, "target": {"code": "fr", "name": "French"}},
        "textsLimit": 4,
        "alternativesLimit": 7,
    }


def test_features_that_are_off_are_403(client):
    assert error(client.post("/suggest", json={}), 403)
    assert error(client.post("/translate_file"), 403) == "Files translation are disabled on this server."


def test_unknown_paths_and_methods(client):
    for answer, status in ((client.get("/detect"), 405), (client.get("/nope"), 404), (client.post("/nope"), 404)):
        assert answer.status_code == status
        assert not answer.headers["content-type"].startswith("application/json")


def test_other_sites_may_send_requests(client):
    for answer in (client.get("/languages"), ask(client), client.options("/translate"), client.get("/nope")):
        assert answer.headers["access-control-allow-origin"] == "*"
        assert answer.headers["access-control-allow-methods"] == "GET, POST"


def test_the_rate_limit_is_429_with_retry_after():
    with TestClient(make_app(echo_service(requests_per_minute=3))) as client:
        assert ask(client, q=["a", "b"]).status_code == 200  # a batch of two counts as two
        assert ask(client).status_code == 200
        answer = ask(client)
        assert error(answer, 429) == "Slowdown: 3 per 1 minute"
        assert 1 <= int(answer.headers["retry-after"]) <= 60


def test_an_internal_error_is_500_without_details():
    class Broken(HeldEngine):
        def search(self, requests, settings, **_):
            if any(len(request.source) == len("▁abc") for request in requests):
                raise RuntimeError("/secret/path and a text")
            return super().search(requests, settings)

    with TestClient(make_app(echo_service(Broken())), raise_server_exceptions=False) as client:
        assert error(ask(client, q="abc"), 500) == "Cannot translate text"
        assert ask(client, q="abcd").json() == {"translatedText": "dcba"}
