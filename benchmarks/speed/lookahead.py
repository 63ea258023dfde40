"""Does guessing ahead pay? Look-ahead decoding beside greedy search: the same model, sentences and results.

    python benchmarks/speed/lookahead.py --model runs/en-de --source test.en [--sentences 100] [--threads 2] [--rounds
        3]

One sentence at a time, through the model itself and its cache on both sides, so that only the number of calls and
their width differ. A round of `block` tokens costs more than a step of one; it pays where few rounds are needed.
"""

import argparse
import statistics
import time
from pathlib import Path

import torch

from heedful.data.corpus import read_text
from heedful.decoding.search.request import Request
from heedful.decoding.steps.parallel_decoding import look_ahead
from heedful.models.model_info import find_model_folder
from heedful.models.model_io import load_model

BLOCKS = (1, 2, 4, 8, 16)  # 1 is greedy search


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--source", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=100)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    loaded = load_model(find_model_folder(options.model))
    assert loaded.tokenizers is not None, "this model has no tokenizers"
    lines = [example.source for example in read_text(options.source)][: options.sentences]
    requests = [Request(ids) for ids in loaded.tokenizers.source.encode_batch(lines)]
    seconds: dict[int, list[float]] = {block: [] for block in BLOCKS}
    found = {}
    for _ in range(options.rounds):
        for block in BLOCKS:
            start = time.perf_counter()
            found[block] = [look_ahead(loaded.model, request, block=block) for request in requests]
            seconds[block].append(time.perf_counter() - start)
    print(
        "| block | calls a sentence | ms a sentence | × greedy's speed | same as greedy |\n|---:|---:|---:|---:|---:|"
    )
    for block in BLOCKS:
        calls = statistics.mean(looked.rounds for looked in found[block])
        same = sum(a.ids == b.ids for a, b in zip(found[block], found[1], strict=True))
        ratios = [greedy / ours for greedy, ours in zip(seconds[1], seconds[block], strict=True)]
        print(
            f"| {block} | {calls:.1f} | {1000 * statistics.median(seconds[block]) / len(requests):.1f} "
            f"| {statistics.median(ratios):.2f} | {same} of {len(requests)} |"
        )


if __name__ == "__main__":
    main()
