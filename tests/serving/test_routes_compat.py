"""The APIs of DeepL, Google and OpenNMT: requests of their clients, and DeepL's own client unchanged."""

import httpx2 as httpx
import pytest

from echo_service import KEY, echo_service, running

GERMAN = "Das ist ein ziemlich langer deutscher Satz."
PATHS = ("/v2/translate", "/language/translate/v2", "/translator/translate")


def test_deepls_own_client_unchanged(locked: str) -> None:
    package = pytest.importorskip("deepl", reason="needs heedful[dev]")
    client = package.DeepLClient(KEY, server_url=locked)
    one = client.translate_text("Hello you", source_lang="EN", target_lang="FR")
    assert (one.text, one.detected_source_lang, one.billed_characters) == ("uoy olleH", "EN", len("Hello you"))
    several = client.translate_text(["one", "two"], target_lang="FR", source_lang="EN")
    assert [each.text for each in several] == ["eno", "owt"]
    results = client.translate_text(GERMAN, target_lang="ZH-HANS")
    assert results.detected_source_lang == "DE" and results.text == GERMAN[::-1]
    marked = client.translate_text("<p>Hello <b>you</b></p>", source_lang="EN", target_lang="FR", tag_handling="html")
    assert marked.text.startswith("<p>") and marked.text.endswith("</p>")
    assert {each.code for each in client.get_source_languages()} == {"EN", "FR", "DE"}
    assert {(each.code, each.supports_formality) for each in client.get_target_languages()} == {
        ("FR", False), ("EN", False), ("ZH-HANS", False),
    }  # fmt: skip
    assert not client.get_usage().any_limit_reached
    with pytest.raises(package.exceptions.AuthorizationException):
        package.DeepLClient("wrong", server_url=locked).translate_text("Hello", target_lang="FR")
    with pytest.raises(package.DeepLException, match="formality"):
        client.translate_text("Hello", source_lang="EN", target_lang="FR", formality="more")


def test_deepl_by_a_form_with_a_field_for_each_text(address: str) -> None:
    form = {"text": ["one", "two"], "target_lang": "fr", "source_lang": "en-GB"}
    assert httpx.post(f"{address}/v2/translate", data=form).json() == {
        "translations": [
            {"detected_source_language": "EN", "text": "eno"},
            {"detected_source_language": "EN", "text": "owt"},
        ]
    }


def test_google(address: str, locked: str) -> None:
    body = {"q": ["one", "two"], "source": "en", "target": "fr", "format": "text"}
    answer = {"data": {"translations": [{"translatedText": "eno"}, {"translatedText": "owt"}]}}
    assert httpx.post(f"{address}/language/translate/v2", json=body).json() == answer
    assert httpx.post(f"{address}/language/translate/v2", data=body).json() == answer
    assert httpx.get(f"{address}/language/translate/v2", params=body).json() == answer
    (results,) = httpx.post(f"{address}/language/translate/v2", json={"q": GERMAN, "target": "zh-CN"}).json()["data"][
        "translations"
    ]
    assert results == {"translatedText": GERMAN[::-1], "detectedSourceLanguage": "de"}
    assert httpx.post(f"{locked}/language/translate/v2", params={"key": KEY}, json=body).json() == answer
    assert httpx.post(f"{locked}/language/translate/v2", headers={"X-goog-api-key": KEY}, json=body).json() == answer
    refused = httpx.post(f"{locked}/language/translate/v2", json=body)
    assert refused.status_code == 403 and refused.json()["error"]["code"] == 403


def test_opennmt(address: str, locked: str) -> None:
    body = [{"src": "one", "id": 0}, {"src": "two", "id": 0}]
    ((first, second),) = httpx.post(f"{address}/translator/translate", json=body).json()
    assert (first["src"], first["tgt"], second["tgt"]) == ("one", "eno", "owt")
    assert first["pred_score"] <= 0 and first["n_best"] == 1
    models = httpx.get(f"{address}/translator/models").json()
    assert (models[0]["model_id"], models[0]["source"], models[0]["target"]) == (0, "en", "fr")
    headers = {"Authorization": f"Bearer {KEY}"}
    assert httpx.post(f"{locked}/translator/translate", json=body, headers=headers).status_code == 200
    assert httpx.post(f"{locked}/translator/translate", json=body).status_code == 403
    mixed = httpx.post(f"{address}/translator/translate", json=[{"src": "one", "id": 0}, {"src": "two", "id": 1}])
    assert mixed.status_code == 400 and mixed.json()["status"] == "error"


BAD = [
    b"",
    b"null",
    b"[]",
    b"{}",
    b"[[]]",
    b'{"text": 5, "target_lang": "fr"}',
    b'{"text": [null], "target_lang": "fr"}',
    b'{"text": "a", "target_lang": {"a": 1}}',
    b'{"text": "a", "target_lang": "fr", "source_lang": 3}',
    b'{"text": "a", "target_lang": "fr", "tag_handling": "xml"}',
    b'{"text": "a", "target_lang": "fr", "glossary_id": "g"}',
    b'{"q": {}, "target": []}',
    b'{"q": "a", "target": "xx"}',
    b'{"q": "a", "target": "fr", "format": ["text"]}',
    b'[{"src": 1}]',
    b'[{"src": "a", "id": 1e9}]',
    b'[{"src": "a", "id": -1}]',
    b"\xff\xfe",
    b"[" * 100_000,
]


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_messages_for_bad_requests_of_other_apis(address: str, path: str, body: bytes) -> None:
    answer = httpx.post(f"{address}{path}", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 400, answer.text
    words = answer.json()
    error = words.get("message") or words["error"]
    assert (error["message"] if isinstance(error, dict) else error) and "Traceback" not in answer.text


def test_the_limits_of_the_server_apply() -> None:
    with running(echo_service(characters=10, texts=2)) as (url, _):
        for path, long, many in (
            ("/v2/translate", {"text": "a" * 11, "target_lang": "fr"}, {"text": ["a"] * 3, "target_lang": "fr"}),
            ("/language/translate/v2", {"q": "a" * 11, "target": "fr"}, {"q": ["a"] * 3, "target": "fr"}),
            ("/translator/translate", [{"src": "a" * 11}], [{"src": "a"}] * 3),
        ):
            for body in (long, many):
                answer = httpx.post(f"{url}{path}", json=body)
                assert answer.status_code == 400 and "exceeds text limit" in answer.text
