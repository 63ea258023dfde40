"""What the models of benchmarks/quality/family.py are compared with: words in a bag and a linear model; a small CNN."""

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from heedful.data.images import Images, flip, normalised, open_images, shift, splits_of
from heedful.models.model_io import load_model
from heedful.models.vit import Vit

N_TEST = 500  # of a set of pictures that has no test part of its own
CNN_BATCH, CNN_RATE = 64, 2e-3


def bag_of_words(train: Sequence[tuple[str, str]], test: Sequence[tuple[str, str]]) -> float:
    """Logistic regression on words and pairs of neighbours, TF-IDF, the strength of its decay chosen on a tenth."""
    held = max(1, len(train) // 10)
    scores = {decay: _linear(train[held:], train[:held], decay) for decay in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)}
    return _linear(train, test, max(scores, key=lambda decay: scores[decay]))


def _linear(train: Sequence[tuple[str, str]], test: Sequence[tuple[str, str]], decay: float) -> float:
    counts = Counter(feature for text, _ in train for feature in dict.fromkeys(features(text)))
    often = (feature for feature, n in counts.items() if n > 1 or len(train) < 1000)
    known = {feature: number for number, feature in enumerate(often)}
    weight = torch.tensor([np.log(len(train) / counts[feature]) for feature in known], dtype=torch.float32)
    labels = sorted({label for _, label in train})
    rows, wanted = _matrix([text for text, _ in train], known, weight), _numbers(train, labels)
    model = nn.Linear(max(1, len(known)), len(labels))
    nn.init.zeros_(model.weight)  # nothing here is drawn: the same texts give the same score
    nn.init.zeros_(model.bias)
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=100)

    def closure() -> Tensor:
        optimiser.zero_grad()
        logits = torch.sparse.mm(rows, model.weight.T) + model.bias
        loss = F.cross_entropy(logits, wanted) + decay * model.weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    with torch.no_grad():
        said = (
            torch.sparse.mm(_matrix([text for text, _ in test], known, weight), model.weight.T) + model.bias
        ).argmax(1)
    return 100.0 * sum(labels[i] == label for i, (_, label) in zip(said.tolist(), test, strict=True)) / len(test)


def features(text: str) -> list[str]:
    words = text.lower().split()
    return words + [f"{a} {b}" for a, b in itertools.pairwise(words)]


def _matrix(texts: Sequence[str], known: dict[str, int], weight: Tensor) -> Tensor:
    places, values = [], []
    for row, text in enumerate(texts):
        found = [known[feature] for feature in dict.fromkeys(features(text)) if feature in known]
        length = float(weight[found].norm()) if found else 1.0
        places += [(row, column) for column in found]
        values += [float(weight[column]) / max(length, 1e-6) for column in found]
    where = torch.tensor(places, dtype=torch.long).reshape(-1, 2).T
    size = (len(texts), max(1, len(known)))
    return torch.sparse_coo_tensor(where, values, size, check_invariants=True).coalesce()


def _numbers(pairs: Sequence[tuple[str, str]], labels: Sequence[str]) -> Tensor:
    return torch.tensor([labels.index(label) for _, label in pairs])


class Parts(NamedTuple):
    """Of a set of pictures."""

    train: Path
    valid: Path
    test: Images


def divided_pictures(path: Path, folder: Path) -> Parts:
    """Files to train with and to validate on, and the pictures to test on: the set's own, or some taken out of it."""
    if "test" in splits_of(path):
        given, test = open_images(path, split="train"), open_images(path, split="test")
    else:
        images = open_images(path, label="last")
        given, test = images.hold_out(N_TEST / len(images), seed=1)
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, part in zip(("train", "valid"), given.hold_out(0.1, seed=2), strict=True):
        files[name] = folder / f"{given.name.partition('.')[0]}.{name}.npz"
        np.savez(files[name], x=part.pixels.transpose(0, 2, 3, 1), y=part.targets)
    return Parts(files["train"], files["valid"], test)


def picture_accuracy(model_folder: Path, test: Images) -> float:
    model = _vit(model_folder)
    with torch.inference_mode():
        said = model(normalised(test.pixels, model.config.mean, model.config.std)).argmax(dim=-1).numpy()
    return 100.0 * float((said == test.targets).mean())


def _vit(folder: Path) -> Vit:
    return load_model(folder).expect(Vit)


def operations(model: nn.Module, picture: Tensor) -> int:
    """Of products and convolutions, forward, for one picture (1, C, H, W); backward takes twice as many."""
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model.eval()(picture)
    return counter.get_total_flops()


def cnn_accuracy(vit: Path, parts: Parts, n_pictures: int, *, seed: int) -> float:
    """Four convolutions with batch norm, given the pictures of the other, moved alike, and as many operations."""
    torch.manual_seed(seed)
    images = open_images(parts.train)
    mean, std = [float(images.pixels.mean() / 255)], [float(images.pixels.std() / 255)]
    photographs = images.pixels.shape[1] == 3
    model = _cnn(images.pixels.shape[1], len(images.labels))
    one = normalised(images.pixels[:1], mean, std)
    n_steps = round(n_pictures * operations(_vit(vit), one) / operations(model, one) / CNN_BATCH)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=CNN_RATE, weight_decay=0.05)
    random = np.random.default_rng(seed)
    for step, rows in zip(range(n_steps), _rows(len(images), random), strict=False):
        for group in optimiser.param_groups:
            group["lr"] = CNN_RATE * (1.0 - step / n_steps)
        pixels = shift(images.pixels[rows], random, by=4 if photographs else 2)
        pixels = flip(pixels, random) if photographs else pixels
        logits = model(normalised(pixels, mean, std))
        loss = F.cross_entropy(logits, torch.from_numpy(images.targets[rows]), label_smoothing=0.1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    with torch.inference_mode():
        said = model(normalised(parts.test.pixels, mean, std)).argmax(dim=-1).numpy()
    return 100.0 * float((said == parts.test.targets).mean())


def _rows(n: int, random: np.random.Generator) -> Iterator[np.ndarray]:
    """Numbers of pictures, batch after batch, for ever; each once in an epoch."""
    while True:
        yield from np.array_split(random.permutation(n), -(-n // CNN_BATCH))


def _cnn(n_channels: int, n_labels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for wide, stride in ((32, 1), (64, 2), (64, 1), (128, 2)):
        layers += [nn.Conv2d(n_channels, wide, 3, stride=stride, padding=1), nn.BatchNorm2d(wide), nn.ReLU()]
        n_channels = wide
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(n_channels, n_labels)
    )
