"""One program that translates, measured from ids to ids in a process of its own.

    python decode_programs.py PROGRAM COMPUTE PREPARED.json ANSWER.json

PREPARED is what benchmarks/speed/decode.py writes. ANSWER gets what was measured, one entry for each case,
and the memory at the end.
"""

import json
import multiprocessing
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

Ids = list[list[int]]
Search = Callable[[Ids, int, int | None], Ids]  # (sources, beam, forced length) -> translations, without marks
FORCED = 15
BEAM = 5
REPEATS, MOMENT = 5, 4.0  # seconds
START, END, PAD = 2, 3, 0


def heedful_engine(prepared: dict, compute: str, engine: str, *, shortlist: bool = False) -> Search:
    from heedful.decoding.engines.auto import AutoEngine, open_engine
    from heedful.decoding.search.request import Request
    from heedful.decoding.search.settings import SearchSettings

    opened = open_engine(prepared["model"], engine=engine, compute=compute, scores=False)

    def search(sources: Ids, beam: int, forced: int | None) -> Ids:
        requests = [Request(source) for source in sources]
        if forced is None:
            found = opened.search(requests, SearchSettings(beam=beam, max_len=prepared["longest"], shortlist=shortlist))
        else:
            settings = SearchSettings(beam=beam, min_len=forced, max_len=forced, shortlist=shortlist)
            # Forced lengths are for measuring only. In a beam CTranslate2 ranks them differently, so `auto` would leave
            # them to torch: here the engine that it has for natural lengths is asked all the same.
            found = (opened.fast._search if isinstance(opened, AutoEngine) else opened.search)(requests, settings)
        return [best[0].ids for best in found]

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
    """`translate_batch` with the settings that are fastest here: for one sentence and for many, greedy and with a beam.

    They are found in a process of their own, which takes its copies of the model with it.
    """
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        ways = pool.apply(_fastest_ways, (prepared, compute))
    opened: dict[tuple[int, int], object] = {}

    def search(sources: Ids, beam: int, forced: int | None) -> Ids:
        inter, intra, kind, size = ways["one" if len(sources) == 1 else f"beam {beam}"]
        if (inter, intra) not in opened:
            opened[inter, intra] = _open(prepared, compute, inter, intra)
        return _translate_batch(opened[inter, intra], prepared, kind, size)(sources, beam, forced)

    return search


Way = tuple[int, int, str, int]  # batches at a time, threads for each, kind and size of a batch


def _fastest_ways(prepared: dict, compute: str) -> dict[str, Way]:
    threads, sample = prepared["threads"], prepared["sources"][:256]
    sizes = [("examples", 16), ("examples", 32), ("examples", 64), ("tokens", 256), ("tokens", 512), ("tokens", 1024)]
    many = [(inter, max(1, threads // inter), kind, size) for inter in {1, threads} for kind, size in sizes]
    one = [(1, intra, "examples", 1) for intra in {1, threads}]
    times: dict[str, dict[Way, float]] = {"beam 1": {}, "beam 5": {}, "one": {}}
    opened = {way[:2]: _open(prepared, compute, *way[:2]) for way in [*many, *one]}
    for beam, part in ((1, sample), (BEAM, sample[:128])):
        for way in many:
            times[f"beam {beam}"][way] = _seconds(opened[way[:2]], prepared, way, [part], beam)
    for way in one:
        times["one"][way] = _seconds(opened[way[:2]], prepared, way, [[source] for source in sample[:32]], 1)
    return {what: min(found, key=found.__getitem__) for what, found in times.items()}


def _open(prepared: dict, compute: str, inter: int, intra: int) -> object:
    import ctranslate2

    return ctranslate2.Translator(prepared["converted"], compute_type=compute, inter_threads=inter, intra_threads=intra)


def _seconds(translator: object, prepared: dict, way: Way, parts: list[Ids], beam: int) -> float:
    """The better of two, after a shorter one."""
    search = _translate_batch(translator, prepared, *way[2:])
    search(parts[0][:32], beam, None)
    times = []
    for _ in range(2):
        start = time.perf_counter()
        for part in parts:
            search(part, beam, None)
        times.append(time.perf_counter() - start)
    return min(times)


def _translate_batch(translator: object, prepared: dict, kind: str, size: int) -> Search:
    spell = prepared["source token"]

    def search(sources: Ids, beam: int, forced: int | None) -> Ids:
        results = translator.translate_batch(
            [[spell % number for number in [*source, END]] for source in sources],
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
    """`generate` on the same weights, sorted by length, in the batches that are fastest here.

    Its beams stop as those of the others do, when as many hypotheses as beams have ended: by default it would go on.
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
        written = model.generate(
            ids,
            attention_mask=(torch.arange(width) < torch.tensor([[len(source) + 1] for source in sources])).long(),
            num_beams=beam,
            early_stopping=beam > 1,
            do_sample=False,
            max_length=None,
            min_new_tokens=forced,
            max_new_tokens=forced or prepared["longest"],
        )
        return [[number for number in row if number not in (START, END, PAD)] for row in written.tolist()]

    def search(sources: Ids, beam: int, forced: int | None, size: int = 64) -> Ids:
        order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
        results: Ids = [[]] * len(sources)
        for start in range(0, len(order), size):
            numbers = order[start : start + size]
            for i, ids in zip(numbers, batch([sources[i] for i in numbers], beam, forced), strict=True):
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
    """Seconds for all sentences at once, or for each alone; what takes a moment is done again, and the median counts.

    A single run of half a second is at the mercy of whatever else the machine does.
    """
    beam, forced = case["beam"], case["forced"]
    parts = [sources] if case["mode"] == "bulk" else [[source] for source in sources]
    repeats: list[list[float]] = []
    while not repeats or (len(repeats) < REPEATS and sum(map(sum, repeats)) < MOMENT):
        times, written = [], []
        for part in parts:
            start = time.perf_counter()
            written += search(part, beam, forced)
            times.append(time.perf_counter() - start)
        repeats.append(times)
    amounts = _amounts(written, statistics.median(map(sum, repeats)))
    if case["mode"] == "bulk":
        return {**case, **amounts, "written": written}
    ordered = sorted(seconds for times in repeats for seconds in times)
    p95 = ordered[min(len(ordered) - 1, int(0.95 * len(ordered)))]
    return {**case, **amounts, "p50": statistics.median(ordered), "p95": p95, "written": written}


def _amounts(written: Ids, seconds: float) -> dict:
    return {"seconds": seconds, "sentences": len(written), "tokens": sum(len(ids) + 1 for ids in written)}


def main() -> None:
    program, compute, prepared_file, answer_file = sys.argv[1:]
    prepared = json.loads(Path(prepared_file).read_text())
    search = PROGRAMS[program](prepared, compute)
    search(prepared["sources"], 1, FORCED)  # heedful measures threads and batches when it first has much to do
    Path(answer_file).with_suffix(".settled").touch()
    answers = []
    for case in prepared["cases"]:
        sources = prepared["sources"] if case["mode"] == "bulk" else prepared["sources"][: prepared["single"]]
        search(sources[:16], case["beam"], case["forced"])  # what is done once is done now
        answers.append(measure(search, case, sources))
    Path(answer_file).write_text(json.dumps({"cases": answers, "memory": pss()}))


def pss() -> int:
    """What this process holds now, in bytes: who looks from outside may come too late for a short run."""
    lines = Path("/proc/self/smaps_rollup").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


if __name__ == "__main__":
    main()
