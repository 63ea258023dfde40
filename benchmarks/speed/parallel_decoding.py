"""Compare parallel (Jacobi) decoding with greedy search: the same model, sentences and results.

    python benchmarks/speed/parallel_decoding.py --model runs/en-de --source test.en [--sentences 100] [--threads 2]
        [--rounds 3]

Both decode one sentence at a time through the model's own forward pass and KV cache, so they differ only in the number
of calls and in their width. A call that verifies `block` tokens costs more than a greedy step; parallel decoding is
faster if few calls are needed.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch

from heedful.data import read_text
from heedful.decoding.search.parallel_decoding import decode_in_parallel
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.steps.reference import ReferenceBlockStep
from heedful.models.model_info import find_model_folder
from heedful.models.model_io import load_model

GREEDY = SearchSettings(beam=1)
BLOCKS = (1, 2, 4, 8, 16)  # 1 is greedy search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True, help="run or model folder")
    parser.add_argument("--source", type=Path, required=True, help="text to translate, one sentence per line")
    parser.add_argument("--sentences", type=int, default=100, help="use at most so many sentences")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    loaded = load_model(find_model_folder(options.model))
    assert loaded.tokenizers is not None, "this model has no tokenizers"
    lines = [example.source for example in read_text(options.source)][: options.sentences]
    requests = [Request(ids) for ids in loaded.tokenizers.source.encode_batch(lines)]
    step = ReferenceBlockStep(loaded.model)
    seconds: dict[int, list[float]] = {block: [] for block in BLOCKS}
    results = {}
    for _ in range(options.rounds):
        for block in BLOCKS:
            start = time.perf_counter()
            results[block] = [decode_in_parallel(step, request, GREEDY, block=block) for request in requests]
            seconds[block].append(time.perf_counter() - start)
    print("| block | calls per sentence | ms per sentence | × greedy's speed | equal to greedy |")
    print("|---:|---:|---:|---:|---:|")
    for block in BLOCKS:
        calls = statistics.mean(result.n_passes for result in results[block])
        same = sum(a.hypothesis.ids == b.hypothesis.ids for a, b in zip(results[block], results[1], strict=True))
        ratios = [greedy / ours for greedy, ours in zip(seconds[1], seconds[block], strict=True)]
        print(
            f"| {block} | {calls:.1f} | {1000 * statistics.median(seconds[block]) / len(requests):.1f} "
            f"| {statistics.median(ratios):.2f} | {same} of {len(requests)} |"
        )


if __name__ == "__main__":
    main()
