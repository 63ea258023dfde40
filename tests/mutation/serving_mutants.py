"""The bugs that `make mutants` plants in the server and the page."""

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
        "who leaves is decoded all the same",
        "serving/batching.py",
        "self._requests.remove(request)\n\n    def _run",
        "pass\n\n    def _run",
        BATCHER,
    ),
    Mutant(
        "who leaves keeps the place",
        "serving/batching.py",
        "self.requests, self.characters = self.requests - 1, self.characters - n_characters",
        "self.characters = self.characters - n_characters",
        BATCHER,
    ),
    Mutant(
        "a full queue takes one more",
        "serving/batching.py",
        "if full or self.requests >= self.max_requests or",
        "if full or self.requests > self.max_requests or",
        BATCHER,
    ),
    Mutant(
        "who will be too late is accepted",
        "serving/batching.py",
        "has_time = all(backlog.has_time_for(more) for backlog, more in work.items())",
        "has_time = True",
        BACKLOG,
    ),
    Mutant(
        "batches at a time count twice",
        "serving/batching.py",
        "self._last_end - max(began, before)",
        "self._last_end - began",
        BACKLOG,
    ),
    Mutant(
        "a batch may take longer than anybody waits",
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
        "a search goes on for whom nobody waits",
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
        "SIGTERM does not wait for who waits",
        "serving/server.py",
        "return self.service.room.requests == 0 or self.force_exit or now >= self._stop_at",
        "return True",
        SERVER,
    ),
    Mutant(
        "the clock of a slow client starts anew with each byte",
        "serving/server.py",
        "if self.deadline is None:\n                self._begin()\n            super()",
        "self._end()\n            self._begin()\n            super()",
        SERVER,
    ),
    Mutant(
        "a body without a length is read to its end",
        "serving/request_parsing.py",
        "if len(body) > limits.body_bytes:",
        "if False:",
        SAFETY,
    ),
    Mutant(
        "a wrong key opens",
        "serving/auth.py",
        "return hmac.compare_digest(_digest(self.salt, key), self.digest)",
        "return hmac.compare_digest(_digest(self.salt, key)[:0], self.digest[:0])",
        SAFETY,
    ),
    Mutant(
        "errors quote what a client sent into the log",
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
        "alternatives repeat the best one",
        "serving/routes/libretranslate.py",
        "return list(dict.fromkeys(text for text in texts if text != texts[0]))",
        "return texts",
        LIBRE,
    ),
    Mutant(
        "options of DeepL that nobody obeys are taken in silence",
        "serving/routes/compat.py",
        "if name not in SUPPORTED and not is_default:",
        "if False:",
        OTHERS,
    ),
    Mutant(
        "of a form with several texts the last is translated",
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
        "words are summed over their queries",
        "page/trace.js",
        "out[i * columnWords.length + j] = sum / (endRow - firstRow);",
        "out[i * columnWords.length + j] = sum;",
        PAGE,
    ),
    Mutant("every head is the first", "page/trace.js", "nHeads === 1 ? 0 : head", "0", PAGE),
    Mutant("weights are a little too large", "page/numbers.js", "/ 65535]", "/ 65000]", PAGE),
    Mutant(
        "the cell is not the one under the pointer",
        "page/matrix.js",
        "Math.floor((y + view.scroller.scrollTop) / cell)",
        "Math.floor((y + cell) / cell)",
        PAGE,
    ),
    Mutant(
        "the alignment is drawn the other way round",
        "page/trace.js",
        "place(target.words, to) * n + place(source.words, from)",
        "place(target.words, from) * n + place(source.words, to)",
        PAGE,
    ),
    Mutant("heads are sorted upside down", "page/thumbnails.js", "DOWNWARD[sort] ? -1 : 1", "1", PAGE),
    Mutant(
        "the walk shows another token's weights",
        "page/walk.js",
        "token * columns.length, (token + 1) * columns.length",
        "0, columns.length",
        PAGE,
    ),
    Mutant(
        "a forced branch forgets how it came there",
        "page/beam.js",
        "[...parent.ids, event.id] : [];",
        "[event.id] : [];",
        SERVED,
    ),
    Mutant(
        "a forced branch opens the target twice",
        "page/beam.js",
        "event.step > beam.n_opening ? ",
        "event.step > 0 ? ",
        SERVED,
    ),
    Mutant(
        "a look is at the whole text, lines and all",
        "insight/inputs.py",
        "return Part(plan.pieces[place], target, Pieces(",
        "return Part(Piece(text, look_model.tokenizers.source.encode(text)), target, Pieces(",
        ("insight/test_inputs.py",),
    ),
    Mutant(
        "every piece of a text is its first",
        "page/main.js",
        "q: sources[place] })",
        "q: sources[0] })",
        SERVED,
    ),
    Mutant("each key is a request", "page/translate.js", "isNow ? 0 : PAUSE", "0", SERVED),
    Mutant(
        "empty lines of a file are lost",
        "page/file.js",
        "(job.out[i] ?? line.text) + line.end",
        "(job.out[i] ? job.out[i] + line.end : line.text)",
        SERVED,
    ),
    Mutant("a busy server is asked once", "page/file.js", "const TRIES = 6;", "const TRIES = 1;", SERVED),
]
