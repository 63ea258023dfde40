"""Clients of LibreTranslate: the requests of four programs, and two libraries that run unchanged."""

import json
import threading

import httpx2 as httpx
import pytest

from echo_service import KEY


def test_mastodon(address, locked):
    """Mastodon requests the languages, sends an array of HTML, and maps 429 and 403 to its own errors."""
    languages = {one["code"]: [to for to in one["targets"] if to != one["code"]] for one in get(address, "/languages")}
    assert languages["en"] == ["fr"]
    body = {"q": ["<p>Hello</p>", "a poll option"], "source": "en", "target": "fr", "format": "html", "api_key": ""}
    answer = httpx.post(f"{address}/translate", json=body).json()
    assert answer["translatedText"] == ["<p>olleH</p>", "noitpo llop a"]
    body |= {"source": "auto"}
    answer = httpx.post(f"{address}/translate", json=body).json()
    assert [one.keys() for one in answer["detectedLanguage"]] == [{"confidence", "language"}] * 2
    assert httpx.post(f"{locked}/translate", json=body | {"api_key": "wrong"}).status_code == 403


def test_weblate(address, locked):
    """Weblate reads the language codes, then sends forms."""
    assert "en" in {one["code"] for one in get(address, "/languages")}
    form = {"q": "Hello, world!", "source": "en", "target": "fr", "api_key": ""}
    assert httpx.post(f"{address}/translate", data=form).json()["translatedText"] == "!dlrow ,olleH"
    assert httpx.post(f"{locked}/translate", data=form | {"api_key": KEY}).json()["translatedText"] == "!dlrow ,olleH"


def test_searxng(address):
    body = {"q": "Hello", "source": "en", "target": "fr", "alternatives": 3}
    headers = {"Content-Type": "application/json"}
    answer = httpx.post(f"{address}/translate", content=json.dumps(body), headers=headers).json()
    assert answer["translatedText"] == "olleH"
    assert len(answer["alternatives"]) == 3


def test_npm_libretranslate(locked):
    """The npm package `libretranslate` sends its key as apiKey."""
    assert get(locked, "/languages")
    body = {"q": "Hello", "source": "en", "target": "fr", "apiKey": KEY}
    assert httpx.post(f"{locked}/translate", json=body).json() == {"translatedText": "olleH"}


@pytest.mark.parametrize("key", [None, KEY])
def test_libretranslatepy_unchanged(address, locked, key):
    package = pytest.importorskip("libretranslatepy", reason="needs heedful[dev]")
    client = package.LibreTranslateAPI(address if key is None else locked, key)
    assert client.translate("Hello you", "en", "fr") == "uoy olleH"
    assert client.detect("Das ist ein ziemlich langer deutscher Satz.")[0]["language"] == "de"
    assert {"code": "en", "name": "English", "targets": ["en", "fr"]} in client.languages()


def test_deep_translator_unchanged(locked):
    package = pytest.importorskip("deep_translator", reason="needs heedful[dev]")
    client = package.LibreTranslator(source="en", target="fr", api_key=KEY, custom_url=f"{locked}/")
    assert client.translate("Hello you") == "uoy olleH"
    assert client.translate_batch(["one", "two"]) == ["eno", "owt"]
    wrong = package.LibreTranslator(source="en", target="fr", api_key="wrong", custom_url=f"{locked}/")
    with pytest.raises(package.exceptions.AuthorizationException):
        wrong.translate("Hello")


def test_many_clients_at_once(address):
    wrong = []

    def ask(number: int) -> None:
        with httpx.Client() as client:
            for turn in range(10):
                text = f"text {'abcdefghij'[number]} {'klmnopqrst'[turn]}"
                body = {"q": text, "source": "en", "target": "fr"}
                if client.post(f"{address}/translate", json=body).json() != {"translatedText": text[::-1]}:
                    wrong.append(text)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(10)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def get(address: str, path: str) -> list[dict]:
    return httpx.get(address + path).json()  # type: ignore[no-any-return]
