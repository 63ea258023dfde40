"""Run one translation program of benchmarks/speed/decode.py in its own process, from token ids to token ids.

    python decode_programs.py PROGRAM COMPUTE PREPARED.json OUTPUT.json

benchmarks/speed/decode.py writes PREPARED. OUTPUT receives the measurements of each case and the memory at the end.
"""

import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

Ids = list[list[int]]
Search = Callable[[Ids, int, int | None], Ids]  # (sources, beam, forced length) -> translations without special ids
FORCED = 15
BEAM = 5
REPEATS, SHORT = 5, 4.0  # a case shorter than SHORT seconds is repeated, at most REPEATS times
START, END, PAD = 2, 3, 0


def heedful_engine(prepared: dict, compute: str, engine: str, *, shortlist: bool = False) -> Search:
    from heedful.decoding.engines.auto import AutoEngine, open_engine
    from heedful.decoding.search.request import Request
    from heedful.decoding.search.settings import SearchSettings

    opened = open_engine(prepared["model"], engine=engine, compute=compute, scores=False)

    def search(sources: Ids, beam: int, forced: int | None) -> Ids:
        requests = [Request(source) for source in sources]
        if forced is None:
            results = opened.search(
                requests, SearchSettings(beam=beam, max_len=prepared["longest"], shortlist=shortlist)
            )
        else:
            settings = SearchSettings(beam=beam, min_len=forced, max_len=forced, shortlist=shortlist)
            # With forced lengths CTranslate2 ranks beams differently, so `auto` would use torch. Measure the engine
            # that it uses for natural lengths.
            results = (opened.fast._search if isinstance(opened, AutoEngine) else opened.search)(requests, settings)
        return [hypotheses[0].ids for hypotheses in results]

    return search


def torch_engine(prepared: dict, compute: str) -> Search:
    import torch

    torch.set_num_threads(prepared["threads"])
    return heedful_engine(prepared, compute, "torch")


def auto_engine(prepared: dict, compute: str) -> Search:
    search = heedful_engine(prepared, compute, "auto")
    assert "torch" not in sys.modules, "CTranslate2 must be measured without torch's threads beside it"
    return search


def with_shortlist(prepared: dict, compute: str) -> Search:
    return heedful_engine(prepared, compute, "auto", shortlist=True)


def ctranslate2_itself(prepared: dict, compute: str) -> Search:
    """Return `translate_batch` with its fastest settings for single and many sentences, greedy and beam search.

    A child process measures the settings, so that its copies of the model do not count as this program's memory.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        settings = pool.apply(_fastest_settings, (prepared, compute))
    opened: dict[tuple[int, int], object] = {}

    def search(sources: Ids, beam: int, forced: int | None) -> Ids:
        inter, intra, kind, size = settings["one" if len(sources) == 1 else f"beam {beam}"]
        if (inter, intra) not in opened:
            opened[inter, intra] = _open(prepared, compute, inter, intra)
        return _translate_batch(opened[inter, intra], prepared, kind, size)(sources, beam, forced)

    return search


Settings = tuple[int, int, str, int]  # parallel batches, threads per batch, batch type, batch size


def _fastest_settings(prepared: dict, compute: str) -> dict[str, Settings]:
    threads, sample = prepared["threads"], prepared["sources"][:256]
    sizes = [("examples", 16), ("examples", 32), ("examples", 64), ("tokens", 256), ("tokens", 512), ("tokens", 1024)]
    many = [(inter, max(1, threads // inter), kind, size) for inter in {1, threads} for kind, size in sizes]
    one = [(1, intra, "examples", 1) for intra in {1, threads}]
    times: dict[str, dict[Settings, float]] = {"beam 1": {}, "beam 5": {}, "one": {}}
    opened = {settings[:2]: _open(prepared, compute, *settings[:2]) for settings in [*many, *one]}
    for beam, part in ((1, sample), (BEAM, sample[:128])):
        for settings in many:
            times[f"beam {beam}"][settings] = _seconds(opened[settings[:2]], prepared, settings, [part], beam)
    for settings in one:
        sentences = [[source] for source in sample[:32]]
        times["one"][settings] = _seconds(opened[settings[:2]], prepared, settings, sentences, 1)
    return {case: min(seconds, key=seconds.__getitem__) for case, seconds in times.items()}


def _open(prepared: dict, compute: str, inter: int, intra: int) -> object:
    import ctranslate2

    return ctranslate2.Translator(prepared["converted"], compute_type=compute, inter_threads=inter, intra_threads=intra)


def _seconds(translator: object, prepared: dict, settings: Settings, parts: list[Ids], beam: int) -> float:
    """Return the seconds for all parts: the better of two runs, after a short warm-up."""
    search = _translate_batch(translator, prepared, *settings[2:])
    search(parts[0][:32], beam, None)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        for part in parts:
            search(part, beam, None)
        times.append(time.perf_counter() - start)
    return min(times)


def _translate_batch(translator: object, prepared: dict, kind: str, size: int) -> Search:
    token_format = prepared["source token"]

    def search(sources: Ids, beam: int, forced: int | None) -> Ids:
        results = translator.translate_batch(
            [[token_format % token_id for token_id in [*source, END]] for source in sources],
            beam_size=beam,
            batch_type=kind,
            max_batch_size=size,
            min_decoding_length=forced or 0,
            max_decoding_length=forced or prepared["longest"],
            max_input_length=0,
        )
        return [[int(token) for token in result.hypotheses[0]] for result in results]

    return search


def huggingface(prepared: dict, compute: str) -> Search:
    """Return `generate` on the same weights, with sentences sorted by length and the fastest batch size.

    `early_stopping` ends a beam when as many hypotheses as beams are finished, as the other programs do.
    """
    import torch
    import transformers

    torch.set_num_threads(prepared["threads"])
    transformers.logging.set_verbosity_error()
    model = transformers.MarianMTModel.from_pretrained(prepared["marian"]).eval()

    @torch.inference_mode()
    def batch(sources: Ids, beam: int, forced: int | None) -> Ids:
        width = max(map(len, sources)) + 1
        ids = torch.tensor([[*source, END] + [PAD] * (width - len(source) - 1) for source in sources])
        outputs = model.generate(
            ids,
            attention_mask=(torch.arange(width) < torch.tensor([[len(source) + 1] for source in sources])).long(),
            num_beams=beam,
            early_stopping=beam > 1,
            do_sample=False,
            max_length=None,
            min_new_tokens=forced,
            max_new_tokens=forced or prepared["longest"],
        )
        return [[token_id for token_id in row if token_id not in (START, END, PAD)] for row in outputs.tolist()]

    def search(sources: Ids, beam: int, forced: int | None, size: int = 64) -> Ids:
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        results: Ids = [[]] * len(sources)
        for start in range(0, len(order), size):
            indices = order[start : start + size]
            for i, ids in zip(indices, batch([sources[i] for i in indices], beam, forced), strict=True):
                results[i] = ids
        return results

    fastest = {}
    for beam, sample in ((1, prepared["sources"][:128]), (BEAM, prepared["sources"][:64])):
        search(sample[:16], beam, FORCED)
        times = {}
        for size in (16, 32, 64, 128):
            start = time.perf_counter()
            search(sample, beam, FORCED, size)
            times[size] = time.perf_counter() - start
        fastest[beam] = min(times, key=times.__getitem__)
    return lambda sources, beam, forced: search(sources, beam, forced, fastest[beam])


PROGRAMS: dict[str, Callable[[dict, str], Search]] = {
    "torch": torch_engine,
    "auto": auto_engine,
    "ctranslate2": ctranslate2_itself,
    "huggingface": huggingface,
    "shortlist": with_shortlist,
}


def measure(search: Search, case: dict, sources: Ids) -> dict:
    """Measure one case: seconds for all sentences at once, or for each sentence alone.

    A short case is repeated and the median counts, because other processes can disturb a single short run.
    """
    beam, forced = case["beam"], case["forced"]
    parts = [sources] if case["mode"] == "bulk" else [[source] for source in sources]
    repeats: list[list[float]] = []
    while not repeats or (len(repeats) < REPEATS and sum(map(sum, repeats)) < SHORT):
        times, translations = [], []
        for part in parts:
            start = time.perf_counter()
            translations += search(part, beam, forced)
            times.append(time.perf_counter() - start)
        repeats.append(times)
    amounts = _amounts(translations, statistics.median(map(sum, repeats)))
    if case["mode"] == "bulk":
        return {**case, **amounts, "translations": translations}
    ordered = sorted(seconds for times in repeats for seconds in times)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {**case, **amounts, "p50": statistics.median(ordered), "p95": p95, "translations": translations}


def _amounts(translations: Ids, seconds: float) -> dict:
    n_tokens = sum(len(ids) + 1 for ids in translations)  # with the end token
    return {"seconds": seconds, "sentences": len(translations), "tokens": n_tokens}


def main() -> None:
    program, compute, prepared_file, output_file = sys.argv[1:]
    prepared = json.loads(Path(prepared_file).read_text())
    search = PROGRAMS[program](prepared, compute)
    search(prepared["sources"], 1, FORCED)  # heedful chooses threads and batch sizes at its first large request
    Path(output_file).with_suffix(".ready").touch()
    outputs = []
    for case in prepared["cases"]:
        sources = prepared["sources"] if case["mode"] == "bulk" else prepared["sources"][: prepared["single"]]
        search(sources[:16], case["beam"], case["forced"])  # warm-up
        outputs.append(measure(search, case, sources))
    Path(output_file).write_text(json.dumps({"cases": outputs, "memory": pss()}))


def pss() -> int:
    """Return this process's PSS in bytes; a short run may end before the benchmark reads it from outside."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
