"""Run one program of benchmarks/speed/generate.py in its own process: JSON lines in, JSON lines out.

    python generate_programs.py PROGRAM FOLDER THREADS [LANES]

With CTranslate2, heedful does not import torch: torch's threads would compete with those of CTranslate2.
"""

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

Texts = list[list[int]]
Program = Callable[[Texts, int], Texts]


def main() -> None:
    name, folder, threads, *lanes = sys.argv[1:]
    generate = PROGRAMS[name](Path(folder), int(threads), *map(int, lanes))
    for line in sys.stdin:
        request = json.loads(line)
        start = time.perf_counter()
        texts = generate(request["prompts"], request["n_tokens"])
        print(json.dumps({"seconds": time.perf_counter() - start, "texts": texts}), flush=True)


def heedful_auto(folder: Path, threads: int) -> Program:
    return _heedful(folder)


def heedful_int8(folder: Path, threads: int) -> Program:
    return _heedful(folder, compute="int8")


def heedful_torch(folder: Path, threads: int, lanes: int | None = None) -> Program:
    import torch

    torch.set_num_threads(threads)
    return _heedful(folder, engine="torch", lanes=lanes)


def _heedful(folder: Path, *, lanes: int | None = None, **options: str) -> Program:
    from heedful.decoding.generator import Generator

    generator = Generator.load(folder / "ours", **options)
    if lanes is not None:
        generator = Generator(generator.model, None, lanes=lanes)
    return lambda prompts, n_tokens: [
        hypotheses[0].ids for hypotheses in generator.search_ids(prompts, max_len=n_tokens)
    ]


def hugging_face(folder: Path, threads: int) -> Program:
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    peer = AutoModelForCausalLM.from_pretrained(folder / "theirs").eval()
    peer.generation_config.eos_token_id = None

    def generate(prompts: Texts, n_tokens: int) -> Texts:
        ids = torch.tensor(prompts)
        with torch.inference_mode():
            outputs = peer.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False, max_new_tokens=n_tokens, pad_token_id=0
            )
        texts: Texts = outputs[:, ids.size(1) :].tolist()
        return texts

    return generate


PROGRAMS: dict[str, Callable[..., Program]] = {
    "heedful": heedful_auto,
    "heedful, int8": heedful_int8,
    "heedful, torch": heedful_torch,
    "Hugging Face": hugging_face,
}

if __name__ == "__main__":
    main()
