"""Requests that exceed a limit of the server, and HTML that is made to be slow to parse."""

import json


def in_json(q: str) -> bytes:
    return b'{"source": "en", "target": "fr", "q": ' + q.encode() + b"}"


TOO_MUCH = {
    "10 MB body": b'{"q": "' + b"x" * 10_000_000 + b'"}',
    "a word of 100,000 letters": in_json('"' + "a" * 100_000 + '"'),
    "a beam of a thousand million": b'{"source": "en", "target": "fr", "q": "a", "beam": 1000000000}',
    "10,000 alternatives": b'{"source": "en", "target": "fr", "q": "a", "alternatives": 10000}',
    "10,000 deep": in_json("[" * 10_000 + "]" * 10_000),
    "10,000 deep, elsewhere": b'{"x": ' + b'{"x":' * 10_000 + b"1" + b"}" * 10_000 + b"}",
    "a lone surrogate": in_json('"\\ud800"'),
    "a million combining marks": in_json('"' + "\u0301" * 400_000 + '"'),
    "65 texts": in_json("[" + ",".join(['"a"'] * 65) + "]"),
    "a million texts": in_json("[" + ",".join(['"a"'] * 200_000) + "]"),
}


def in_html(text: str, source: str) -> bytes:
    return json.dumps({"q": [text] * 64, "source": source, "target": "fr", "format": "html"}).encode()


# Within the limits, but slow for a parser whose time grows faster than the length. It has nothing to translate.
BAD_MARKUP = {
    f"{text[:9]} … from {source}": in_html(text, source)
    for text in ("<a " * 1_600 + ">", "<a>" * 800 + "</b>" * 600, "<![" * 1_600, "<a b='" * 800 + ">", "<!--" * 1_200)
    for source in ("en", "auto")
}
