"""Train a Marian model of the same size with Hugging Face's Seq2SeqTrainer.

    python train_huggingface.py FOLDER RUN

benchmarks/speed/train.py prepares FOLDER; RUN is a folder to create. A batch has a fixed number of sentences, grouped
by length, so that it has `batch_tokens` target tokens on average. Prints "step N" after each step, where N is the
number of its target tokens without padding.
"""

import json
import sys
from pathlib import Path

import torch
from transformers import MarianConfig, MarianMTModel, Seq2SeqTrainer, Seq2SeqTrainingArguments, TrainerCallback

PAD, START, END = 0, 2, 3
IGNORED = -100  # label of padding, which the loss ignores


class Pairs(torch.utils.data.Dataset):
    def __init__(self, folder: Path) -> None:
        sides = ((folder / f"train.{side}").read_text().splitlines() for side in ("source", "target"))
        self.rows = [
            tuple([int(token_id) for token_id in text.split()] for text in pair) for pair in zip(*sides, strict=True)
        ]

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> dict[str, list[int]]:
        source, target = self.rows[index]
        return {"input_ids": source, "labels": [*target, END]}


def padded(rows: list[list[int]], value: int) -> torch.Tensor:
    longest = max(map(len, rows))
    return torch.tensor([row + [value] * (longest - len(row)) for row in rows])


def collate(rows: list[dict[str, list[int]]]) -> dict[str, torch.Tensor]:
    source = padded([row["input_ids"] for row in rows], PAD)
    return {
        "input_ids": source,
        "attention_mask": (source != PAD).long(),
        "decoder_input_ids": padded([[START, *row["labels"][:-1]] for row in rows], PAD),
        "labels": padded([row["labels"] for row in rows], IGNORED),
    }


class Steps(TrainerCallback):
    """Count the tokens that enter the model (the loader is ahead of it) and print them when a step is done."""

    def __init__(self, model: torch.nn.Module) -> None:
        self.tokens = 0
        model.register_forward_pre_hook(self.count, with_kwargs=True)

    def count(self, model: torch.nn.Module, args: tuple, kwargs: dict[str, torch.Tensor]) -> None:
        self.tokens += int((kwargs["decoder_input_ids"] != PAD).sum())

    def on_step_end(self, arguments: object, state: object, control: object, **_: object) -> None:
        print("step", self.tokens, flush=True)
        self.tokens = 0


def make_model(sizes: dict) -> MarianMTModel:
    sizes_of_a_side = {
        "layers": sizes["n_layers"],
        "attention_heads": sizes["n_heads"],
        "ffn_dim": sizes["d_ff"],
    }
    return MarianMTModel(
        MarianConfig(
            vocab_size=sizes["vocab_size"],
            d_model=sizes["d_model"],
            **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes_of_a_side.items()},
            dropout=sizes["dropout"],
            attention_dropout=sizes["attention_dropout"],
            activation_function="relu",
            scale_embedding=True,
            pad_token_id=PAD,
            eos_token_id=END,
            forced_eos_token_id=END,
            decoder_start_token_id=START,
        )
    )


def main() -> None:
    folder, run = Path(sys.argv[1]), sys.argv[2]
    sizes = json.loads((folder / "sizes.json").read_text())
    torch.manual_seed(1)
    torch.set_num_threads(sizes["threads"])
    pairs, model = Pairs(folder), make_model(sizes)
    mean = sum(len(target) + 1 for _, target in pairs.rows) / len(pairs)
    arguments = Seq2SeqTrainingArguments(
        output_dir=run,
        per_device_train_batch_size=max(1, round(sizes["batch_tokens"] / mean)),
        train_sampling_strategy="group_by_length",
        label_smoothing_factor=sizes["label_smoothing"],
        learning_rate=sizes["lr"],
        lr_scheduler_type="constant",
        adam_beta2=0.98,
        adam_epsilon=1e-9,
        max_steps=10**6,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
    )
    Seq2SeqTrainer(model, arguments, data_collator=collate, train_dataset=pairs, callbacks=[Steps(model)]).train()


if __name__ == "__main__":
    main()
