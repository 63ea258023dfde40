"""Train with a plain loop around torch.nn.Transformer, with batches sorted by length and fused AdamW.

    python plain.py FOLDER [bfloat16]

benchmarks/speed/train.py prepares FOLDER; with `bfloat16`, matrix products use bfloat16. Prints "step N" after each
step, where N is the number of its target tokens without padding.
"""

import json
import math
import random
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

PAD, START, END = 0, 2, 3
Pair = tuple[list[int], list[int]]


class Translator(nn.Module):
    def __init__(self, sizes: dict[str, float]) -> None:
        super().__init__()
        self.d_model, n_layers = int(sizes["d_model"]), int(sizes["n_layers"])
        self.embedding = nn.Embedding(int(sizes["vocab_size"]), self.d_model, padding_idx=PAD)
        nn.init.normal_(self.embedding.weight, std=self.d_model**-0.5)
        self.transformer = nn.Transformer(
            self.d_model,
            int(sizes["n_heads"]),
            n_layers,
            n_layers,
            int(sizes["d_ff"]),
            sizes["dropout"],
            batch_first=True,
        )
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):  # nn.Transformer has one dropout for everything
                module.dropout = sizes["attention_dropout"]
        self.dropout = nn.Dropout(sizes["dropout"])
        self.register_buffer("positions", sinusoids(1024, self.d_model), persistent=False)

    def embed(self, ids: Tensor) -> Tensor:
        return self.dropout(self.embedding(ids) * math.sqrt(self.d_model) + self.positions[: ids.size(1)])

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        future = nn.Transformer.generate_square_subsequent_mask(target.size(1), dtype=torch.bool)
        hidden = self.transformer(
            self.embed(source),
            self.embed(target),
            tgt_mask=future,
            src_key_padding_mask=source == PAD,
            tgt_key_padding_mask=target == PAD,
            memory_key_padding_mask=source == PAD,
            tgt_is_causal=True,
        )
        return F.linear(hidden, self.embedding.weight)


def sinusoids(length: int, d_model: int) -> Tensor:
    angles = torch.arange(length)[:, None] * torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)


def read(path: Path) -> list[list[int]]:
    return [[int(token_id) for token_id in line.split()] for line in path.read_text().splitlines()]


def batches(pairs: list[Pair], n_tokens: int) -> Iterator[list[Pair]]:
    """Yield batches of similar length, at most `n_tokens` target tokens with padding, in random order, endlessly."""
    rng = random.Random(1)
    while True:
        rng.shuffle(pairs)
        pairs.sort(key=lambda pair: (len(pair[1]), len(pair[0])))
        groups: list[list[Pair]] = [[]]
        for pair in pairs:
            if (len(groups[-1]) + 1) * (len(pair[1]) + 1) > n_tokens:
                groups.append([])
            groups[-1].append(pair)
        rng.shuffle(groups)
        yield from groups


def padded(rows: list[list[int]]) -> Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [PAD] * (longest - len(row)) for row in rows])


def main() -> None:
    folder, in_bfloat16 = Path(sys.argv[1]), "bfloat16" in sys.argv[2:]
    sizes = json.loads((folder / "sizes.json").read_text())
    torch.manual_seed(1)
    torch.set_num_threads(sizes["threads"])
    pairs = list(zip(read(folder / "train.source"), read(folder / "train.target"), strict=True))
    model = Translator(sizes).train()
    optimiser = torch.optim.AdamW(
        model.parameters(), lr=sizes["lr"], betas=(0.9, 0.98), eps=1e-9, weight_decay=0.0, fused=True
    )
    for batch in batches(pairs, sizes["batch_tokens"]):
        target = padded([[START, *target, END] for _, target in batch])
        labels = target[:, 1:]
        target = torch.where(target == END, PAD, target)[:, :-1]  # the end token is predicted, never an input
        with torch.autocast("cpu", torch.bfloat16, enabled=in_bfloat16):
            logits = model(padded([source for source, _ in batch]), target)
            loss = F.cross_entropy(
                logits.flatten(0, 1), labels.flatten(), ignore_index=PAD, label_smoothing=sizes["label_smoothing"]
            )
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        optimiser.zero_grad()
        print("step", int((labels != PAD).sum()), flush=True)


if __name__ == "__main__":
    main()
