"""`heedful serve` as users start it, in a process of its own, with a model that a test makes."""

import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from deterministic import fill
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import SPECIAL_IDS, TokenizerConfig, learn_tokenizers

ENGLISH = ["A dog runs.", "Two dogs sleep in the snow.", "The animal was too tired.", "A big man eats bread."] * 10
GERMAN = ["Ein Hund rennt.", "Zwei Hunde schlafen im Schnee.", "Das Tier war zu müde.", "Ein Mann isst Brot."] * 10
CARD = '---\nlanguage:\n- "en"\n- "de"\n---\n\n# A model\n'
TINY = {"d_model": 32, "n_layers": 2, "n_heads": 4, "d_ff": 48, "max_len": 80}
BASE = {"d_model": 512, "n_layers": 6, "n_heads": 8, "d_ff": 2048, "max_len": 128}


def make_folder(
    folder: Path,
    sizes: dict[str, int] = TINY,
    *,
    texts: tuple[Sequence[str], Sequence[str]] = (ENGLISH, GERMAN),
    vocab_size: int = 360,
) -> Path:
    """Write an untrained model whose predictions differ clearly, so that rounding does not decide a search."""
    words = learn_tokenizers(*texts, TokenizerConfig(kind="bpe", vocab_size=vocab_size, joint=True))
    config = Seq2SeqConfig(words.source.vocab_size, words.target.vocab_size, **sizes)  # type: ignore[arg-type]
    model = fill(Seq2Seq(config), dtype=torch.float32)
    assert isinstance(model, Seq2Seq)
    with torch.no_grad():
        for layer in model.decoder.layers:
            layer.cross_attention.to_out.weight.mul_(6.0)
            layer.feed_forward.outer.weight.mul_(6.0)
        model.head.linear.weight[SPECIAL_IDS.eos_id] *= 2.0
    return save_model(folder, model, words, card=CARD)


@dataclass(frozen=True)
class Running:
    url: str  # without a slash at its end
    process: "subprocess.Popen[str]"

    def get(self, path: str) -> str:
        with urllib.request.urlopen(self.url + path, timeout=30) as answer:
            return str(answer.read().decode())

    def post(self, path: str, body: bytes) -> str:
        """Send JSON and return the answer; a status other than 200 is an error."""
        request = urllib.request.Request(self.url + path, body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=60) as answer:
            return str(answer.read().decode())

    def number(self, name: str) -> float:
        """Return one value of /metrics."""
        found = re.search(rf"^heedful_{name} (\S+)$", self.get("/metrics"), re.MULTILINE)
        assert found, name
        return float(found[1])


@contextmanager
def real_server(folder: Path, *options: str) -> Iterator[Running]:
    """Start `heedful serve` with a model whose card has the languages."""
    command = [sys.executable, "-m", "heedful", "serve", "-m", str(folder), "--port", "0", *options]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, process_group=0)
    assert process.stderr is not None
    try:
        said = ""
        while not (found := re.search(r"listening at (http://\S+)/ ", said)):
            line = process.stderr.readline()
            assert line, said
            said += line
        yield Running(found[1], process)
    finally:
        process.terminate()
        try:
            process.wait(60)
        finally:
            process.kill()
            process.stderr.close()
