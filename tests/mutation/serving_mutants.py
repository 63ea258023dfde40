"""Bugs to plant in the server and the page."""

from mutant_kind import Mutant

BATCHER = ("serving/test_batching.py",)
BACKLOG = ("serving/test_batching_estimates.py",)
SERVER = ("serving/test_server.py",)
SAFETY = ("serving/test_security.py",)
LIBRE = ("serving/test_routes_libretranslate.py",)
OTHERS = ("serving/test_routes_compat.py",)
PAGE = ("page/test_page.py",)
SERVED = ("page/test_served_page.py",)

IN_SERVING = [
    Mutant(
        "answers go to the wrong texts of a request",
        "serving/batching.py",
        "request.results[number] = translations",
        "request.results[number - 1] = translations",
        BATCHER,
    ),
    Mutant(
        "texts with different settings are decoded together",
        "serving/batching.py",
        "if request.settings is settings or request.settings == settings",
        "if True",
        BATCHER,
    ),
    Mutant(
        "texts of a disconnected client are decoded",
        "serving/batching.py",
        "self._requests.remove(request)\n\n    def _run",
        "pass\n\n    def _run",
        BATCHER,
    ),
    Mutant(
        "a disconnected client keeps its place in the queue",
        "serving/batching.py",
        "self.requests, self.characters = self.requests - 1, self.characters - n_characters",
        "self.characters = self.characters - n_characters",
        BATCHER,
    ),
    Mutant(
        "a full queue accepts one more request",
        "serving/batching.py",
        "if full or self.requests >= self.max_requests or",
        "if full or self.requests > self.max_requests or",
        BATCHER,
    ),
    Mutant(
        "a request that will be late is accepted",
        "serving/batching.py",
        "has_time = all(estimator.has_time_for(more) for estimator, more in work.items())",
        "has_time = True",
        BACKLOG,
    ),
    Mutant(
        "overlapping batches count twice in the estimate",
        "serving/batching.py",
        "self._last_end - max(began, before)",
        "self._last_end - began",
        BACKLOG,
    ),
    Mutant(
        "a batch may take longer than the time limit",
        "serving/batching.py",
        'if self._pace else float("inf")',
        'if self._pace > 1e9 else float("inf")',
        BACKLOG,
    ),
    Mutant(
        "small requests wait for large ones",
        "serving/batching.py",
        "for _ in range(min(FIRST_TEXTS, len(request.texts))):",
        "for _ in range(0):",
        BATCHER,
    ),
    Mutant(
        "one bad text fails all of its batch",
        "serving/batching.py",
        "if len(requests) == 1:",
        "if True:",
        BATCHER,
    ),
    Mutant(
        "a running search goes on after its client disconnected",
        "decoding/search/continuous_batching.py",
        "live.done[slot], live.finished[slot] = True, []",
        "pass",
        BATCHER,
    ),
    Mutant(
        "a stopping server takes new requests",
        "serving/batching.py",
        "if self.is_closed:\n            raise stopping()",
        "if False:\n            raise stopping()",
        BATCHER,
    ),
    Mutant(
        "SIGTERM does not wait for running requests",
        "serving/server.py",
        "return self.service.room.requests == 0 or self.force_exit or now >= self._stop_at",
        "return True",
        SERVER,
    ),
    Mutant(
        "a slow client's time limit restarts with each byte",
        "serving/server.py",
        "if self.deadline is None:\n                self._begin()\n            super()",
        "self._end()\n            self._begin()\n            super()",
        SERVER,
    ),
    Mutant(
        "a body without Content-Length has no size limit",
        "serving/request_parsing.py",
        "if len(body) > limits.body_bytes:",
        "if False:",
        SAFETY,
    ),
    Mutant(
        "a wrong API key is accepted",
        "serving/auth.py",
        "return hmac.compare_digest(_digest(self.salt, key), self.digest)",
        "return hmac.compare_digest(_digest(self.salt, key)[:0], self.digest[:0])",
        SAFETY,
    ),
    Mutant(
        "the log quotes clients' texts",
        "serving/errors.py",
        'lines += [f"{type(cause).__name__} at", *traceback.format_tb(cause.__traceback__)]',
        'lines += [f"{type(cause).__name__}: {cause} at", *traceback.format_tb(cause.__traceback__)]',
        SAFETY,
    ),
    Mutant(
        "translations in HTML are not escaped",
        "serving/html_segments.py",
        "filled = html.escape(translation.text, quote=False)",
        "filled = translation.text",
        ("serving/test_html_segments.py",),
    ),
    Mutant(
        "alternatives repeat the best translation",
        "serving/routes/libretranslate.py",
        "return list(dict.fromkeys(text for text in texts if text != texts[0]))",
        "return texts",
        LIBRE,
    ),
    Mutant(
        "unsupported options of DeepL are ignored silently",
        "serving/routes/compat.py",
        "if name not in SUPPORTED and not is_default:",
        "if False:",
        OTHERS,
    ),
    Mutant(
        "only the last of several texts in a form is translated",
        "serving/request_parsing.py",
        "values[name] = [value for other, value in fields if other == name]",
        "pass",
        OTHERS,
    ),
    Mutant(
        "DeepL's clients need no key",
        "serving/routes/compat.py",
        "client = self._client(request, _deepl_key(request, values))",
        'client = "anybody"',
        OTHERS,
    ),
]

IN_PAGE = [
    Mutant(
        "the page sums attention over a word's queries instead of averaging",
        "page/trace.js",
        "out[i * columnWords.length + j] = sum / (endRow - firstRow);",
        "out[i * columnWords.length + j] = sum;",
        PAGE,
    ),
    Mutant("the page shows the first head for every head", "page/trace.js", "nHeads === 1 ? 0 : head", "0", PAGE),
    Mutant("the page decodes packed weights slightly too large", "page/numbers.js", "/ 65535]", "/ 65000]", PAGE),
    Mutant(
        "the page reads out the cell beside the pointer",
        "page/matrix.js",
        "Math.floor((y + view.scroller.scrollTop) / cell)",
        "Math.floor((y + cell) / cell)",
        PAGE,
    ),
    Mutant(
        "the page draws the alignment transposed",
        "page/trace.js",
        "place(target.words, to) * n + place(source.words, from)",
        "place(target.words, from) * n + place(source.words, to)",
        PAGE,
    ),
    Mutant("the page sorts heads in reverse order", "page/thumbnails.js", "DOWNWARD[sort] ? -1 : 1", "1", PAGE),
    Mutant(
        "the page's walk shows another token's weights",
        "page/walk.js",
        "token * columns.length, (token + 1) * columns.length",
        "0, columns.length",
        PAGE,
    ),
    Mutant(
        "a forced branch omits the tokens before it",
        "page/beam.js",
        "[...parent.ids, event.id] : [];",
        "[event.id] : [];",
        SERVED,
    ),
    Mutant(
        "a forced branch repeats the forced first token",
        "page/beam.js",
        "event.step > beam.n_opening ? ",
        "event.step > 0 ? ",
        SERVED,
    ),
    Mutant(
        "a look takes a text of several lines as one sentence",
        "insight/inputs.py",
        "segmented.segments[index], target, Pieces(",
        "Segment(text, look_model.tokenizers.source.encode(text)), target, Pieces(",
        ("insight/test_inputs.py",),
    ),
    Mutant(
        "the page shows the first piece of a text for every piece",
        "page/main.js",
        "q: sources[place] })",
        "q: sources[0] })",
        SERVED,
    ),
    Mutant("the page sends a request for each key", "page/translate.js", "isNow ? 0 : PAUSE", "0", SERVED),
    Mutant(
        "the page drops empty lines of a file",
        "page/file.js",
        "(job.out[i] ?? line.text) + line.end",
        "(job.out[i] ? job.out[i] + line.end : line.text)",
        SERVED,
    ),
    Mutant("the page does not ask a busy server again", "page/file.js", "const TRIES = 6;", "const TRIES = 1;", SERVED),
]
