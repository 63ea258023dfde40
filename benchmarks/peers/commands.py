"""The command and settings with which each peer trains the same model; settings are JSON, which is valid YAML.

All peers read token ids as words, so that no program changes a piece. If a peer offers several ways, the fastest is
used; if it cannot do something that the others do, its docstring says so.
"""

import json
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
NEVER = 10**6  # steps
STEP_LINE = r"^step (\d+)$"  # printed by the scripts of this folder
ONMT_LINE = r"bsz: *\d+/ *(\d+)/"  # source/target tokens/sentences of a step, without padding


@dataclass(frozen=True)
class Sizes:
    """The sizes and hyperparameters of all programs. Multi30k has 29,000 pairs of about 16 target tokens each."""

    d_model: int = 256
    d_ff: int = 1024
    n_heads: int = 4
    n_layers: int = 3
    vocab_size: int = 8000
    dropout: float = 0.1
    attention_dropout: float = 0.0
    label_smoothing: float = 0.1
    batch_tokens: int = 4096
    lr: float = 0.0005
    threads: int = 2


Command = Callable[[Path, Path, Path, Sizes], list[str]]  # (programs, prepared data, run folder, sizes) -> command


@dataclass(frozen=True)
class Peer:
    name: str
    command: Command
    own_environment: bool = True  # False: heedful's environment
    steps: str = STEP_LINE  # matches a step in its output; the group is the number of target tokens
    variables: dict[str, str] = field(default_factory=dict)


def heedful(programs: Path, data: Path, run: Path, sizes: Sizes) -> list[str]:
    return [sys.executable, str(HERE / "train_heedful.py"), str(data), str(run / "run")]


def heedful_bfloat16(programs: Path, data: Path, run: Path, sizes: Sizes) -> list[str]:
    return [*heedful(programs, data, run, sizes), "bfloat16"]


def plain(programs: Path, data: Path, run: Path, sizes: Sizes) -> list[str]:
    return [sys.executable, str(HERE / "plain.py"), str(data)]


def plain_bfloat16(programs: Path, data: Path, run: Path, sizes: Sizes) -> list[str]:
    return [*plain(programs, data, run, sizes), "bfloat16"]


def huggingface(programs: Path, data: Path, run: Path, sizes: Sizes) -> list[str]:
    return [str(programs / "python"), str(HERE / "train_huggingface.py"), str(data), str(run)]


def opennmt(programs: Path, data: Path, run: Path, sizes: Sizes) -> list[str]:
    """OpenNMT-py has pre-norm layers only; the number of operations is equal."""
    settings = {
        "data": {"corpus": {"path_src": str(data / "train.source"), "path_tgt": str(data / "train.target")}},
        "src_vocab": str(data / "vocabulary"),
        "share_vocab": True,
        "src_vocab_size": sizes.vocab_size,
        "tgt_vocab_size": sizes.vocab_size,
        "save_model": str(run / "model"),
        "encoder_type": "transformer",
        "decoder_type": "transformer",
        "word_vec_size": sizes.d_model,
        "hidden_size": sizes.d_model,
        "transformer_ff": sizes.d_ff,
        "heads": sizes.n_heads,
        "layers": sizes.n_layers,
        "position_encoding": True,
        "share_embeddings": True,
        "share_decoder_embeddings": True,
        "dropout": [sizes.dropout],
        "attention_dropout": [sizes.attention_dropout],
        "param_init": 0.0,
        "param_init_glorot": True,
        "model_dtype": "fp32",
        **_onmt_training(sizes),
        "report_every": 1,
    }
    return [str(programs / "onmt_train"), "--config", _write_settings(run / "settings.yaml", settings)]


def eole(programs: Path, data: Path, run: Path, sizes: Sizes) -> list[str]:
    """Eole is OpenNMT-py's successor; its decoder has pre-norm layers only."""
    settings = {
        "data": {"corpus": {"path_src": str(data / "train.source"), "path_tgt": str(data / "train.target")}},
        "src_vocab": str(data / "vocabulary"),
        "share_vocab": True,
        "src_vocab_size": sizes.vocab_size,
        "tgt_vocab_size": sizes.vocab_size,
        "report_every": 1,
        "model": {
            "architecture": "transformer",
            "hidden_size": sizes.d_model,
            "transformer_ff": sizes.d_ff,
            "heads": sizes.n_heads,
            "layers": sizes.n_layers,
            "add_qkvbias": True,
            "add_final_linear_bias": True,
            "add_ffnbias": True,
            "share_embeddings": True,
            "share_decoder_embeddings": True,
            "embeddings": {
                "word_vec_size": sizes.d_model,
                "position_encoding_type": "SinusoidalInterleaved",
            },
        },
        "training": {
            "model_path": str(run / "model"),
            "dropout": [sizes.dropout],
            "attention_dropout": [sizes.attention_dropout],
            "param_init_method": "xavier_uniform",
            "compute_dtype": "fp32",
            "log_attention_entropy": False,
            **_onmt_training(sizes),
        },
    }
    return [str(programs / "eole"), "train", "--config", _write_settings(run / "settings.yaml", settings)]


def _onmt_training(sizes: Sizes) -> dict[str, object]:
    """Return the settings that OpenNMT-py and Eole share; a bucket, sorted by length, holds about the whole corpus."""
    return {
        "batch_type": "tokens",
        "batch_size": sizes.batch_tokens,
        "normalization": "tokens",
        "bucket_size": 32768,
        "optim": "adam",
        "adam_beta2": 0.98,
        "learning_rate": sizes.lr,
        "decay_method": "none",
        "max_grad_norm": 1.0,
        "label_smoothing": sizes.label_smoothing,
        "train_steps": NEVER,
        "valid_steps": NEVER,
        "save_checkpoint_steps": NEVER,
    }


def joeynmt(programs: Path, data: Path, run: Path, sizes: Sizes) -> list[str]:
    """JoeyNMT cannot sort batches by length."""
    side = {"max_length": 512, "level": "word", "voc_file": str(data / "vocabulary")}
    part = {
        "type": "transformer",
        "num_layers": sizes.n_layers,
        "num_heads": sizes.n_heads,
        "embeddings": {"embedding_dim": sizes.d_model, "scale": True, "dropout": sizes.dropout},
        "hidden_size": sizes.d_model,
        "ff_size": sizes.d_ff,
        "dropout": sizes.dropout,
        "layer_norm": "post",
    }
    settings = {
        "name": "benchmark",
        "joeynmt_version": "2.3.0",
        "model_dir": str(run / "model"),
        "use_cuda": False,
        "random_seed": 1,
        "attention_dropout": sizes.attention_dropout,  # read by train_joeynmt.py
        "data": {
            "train": str(data / "train"),
            "dev": str(data / "valid"),
            "dataset_type": "plain",
            "src": {"lang": "source", **side},
            "trg": {"lang": "target", **side},
        },
        "model": {"tied_embeddings": True, "tied_softmax": True, "encoder": part, "decoder": part},
        "training": {
            "optimizer": "adam",
            "adam_betas": [0.9, 0.98],
            "learning_rate": sizes.lr,
            "scheduling": "warmupinversesquareroot",  # "plateau" fails with this torch; there is no constant schedule
            "clip_grad_norm": 1.0,
            "normalization": "tokens",
            "batch_size": sizes.batch_tokens,
            "batch_type": "token",
            "label_smoothing": sizes.label_smoothing,
            "epochs": NEVER,
            "logging_freq": NEVER,
            "validation_freq": NEVER,
        },
        "testing": {},
    }
    return [str(programs / "python"), str(HERE / "train_joeynmt.py"), _write_settings(run / "settings.yaml", settings)]


def _write_settings(path: Path, settings: object) -> str:
    path.write_text(json.dumps(settings, indent=1) + "\n")
    return str(path)


# What glibc frees, it gives back to the system, to be zeroed and mapped again in every step. heedful tells it not to; a
# user who knows can tell it for any program, with these.
KEEP_MEMORY = {"MALLOC_TRIM_THRESHOLD_": str(2**31 - 1), "MALLOC_MMAP_MAX_": "0"}

PEERS: dict[str, Peer] = {
    "heedful": Peer("heedful", heedful, own_environment=False),
    "heedful-bfloat16": Peer("heedful, bfloat16", heedful_bfloat16, own_environment=False),
    "opennmt": Peer("OpenNMT-py 3.5.1", opennmt, steps=ONMT_LINE),
    "eole": Peer("Eole 0.6.4", eole, steps=ONMT_LINE),
    "huggingface": Peer("Hugging Face Seq2SeqTrainer", huggingface),
    "joeynmt": Peer("JoeyNMT 2.3.0", joeynmt),
    "plain": Peer("torch.nn.Transformer, own loop", plain, own_environment=False),
    "plain-kept": Peer(
        "torch.nn.Transformer, own loop, freed memory kept", plain, own_environment=False, variables=KEEP_MEMORY
    ),
    "plain-bfloat16": Peer(
        "torch.nn.Transformer, own loop, freed memory kept, bfloat16",
        plain_bfloat16,
        own_environment=False,
        variables=KEEP_MEMORY,
    ),
}
