"""The baselines of benchmarks/quality/family.py: a linear model on a bag of words, and a small CNN."""

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

from heedful.data import Images, flip, normalised, open_images, shift, splits_of
from heedful.models.model_io import load_model
from heedful.models.vit import Vit

N_TEST = 500  # test pictures that are taken from a set without a test part
CNN_BATCH, CNN_RATE = 64, 2e-3


def bag_of_words(train: Sequence[tuple[str, str]], test: Sequence[tuple[str, str]]) -> float:
    """Return the accuracy of logistic regression on TF-IDF of words and word pairs, in percent.

    The strength of its weight decay is chosen on a tenth of the training texts.
    """
    n_held_out = max(1, len(train) // 10)
    scores = {decay: _linear(train[n_held_out:], train[:n_held_out], decay) for decay in (1e-6, 1e-5, 1e-4, 1e-3, 1e-2)}
    return _linear(train, test, max(scores, key=lambda decay: scores[decay]))


def _linear(train: Sequence[tuple[str, str]], test: Sequence[tuple[str, str]], decay: float) -> float:
    counts = Counter(feature for text, _ in train for feature in dict.fromkeys(features(text)))
    frequent = (feature for feature, n in counts.items() if n > 1 or len(train) < 1000)
    columns = {feature: column for column, feature in enumerate(frequent)}
    idf = torch.tensor([np.log(len(train) / counts[feature]) for feature in columns], dtype=torch.float32)
    labels = sorted({label for _, label in train})
    rows, targets = _matrix([text for text, _ in train], columns, idf), _label_ids(train, labels)
    model = nn.Linear(max(1, len(columns)), len(labels))
    nn.init.zeros_(model.weight)  # not random: equal texts give equal scores
    nn.init.zeros_(model.bias)
    optimiser = torch.optim.LBFGS(model.parameters(), max_iter=100)

    def closure() -> Tensor:
        optimiser.zero_grad()
        logits = torch.sparse.mm(rows, model.weight.T) + model.bias
        loss = F.cross_entropy(logits, targets) + decay * model.weight.square().sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    with torch.no_grad():
        test_rows = _matrix([text for text, _ in test], columns, idf)
        predicted = (torch.sparse.mm(test_rows, model.weight.T) + model.bias).argmax(1)
    n_right = sum(labels[i] == label for i, (_, label) in zip(predicted.tolist(), test, strict=True))
    return 100.0 * n_right / len(test)


def features(text: str) -> list[str]:
    """Return the lower-cased words of a text and its pairs of neighbouring words."""
    words = text.lower().split()
    return words + [f"{a} {b}" for a, b in itertools.pairwise(words)]


def _matrix(texts: Sequence[str], columns: dict[str, int], idf: Tensor) -> Tensor:
    """Return a sparse matrix with a normalized TF-IDF row for each text."""
    indices, values = [], []
    for row, text in enumerate(texts):
        present = [columns[feature] for feature in dict.fromkeys(features(text)) if feature in columns]
        length = float(idf[present].norm()) if present else 1.0
        indices += [(row, column) for column in present]
        values += [float(idf[column]) / max(length, 1e-6) for column in present]
    size = (len(texts), max(1, len(columns)))
    index_tensor = torch.tensor(indices, dtype=torch.long).reshape(-1, 2).T
    return torch.sparse_coo_tensor(index_tensor, values, size, check_invariants=True).coalesce()


def _label_ids(pairs: Sequence[tuple[str, str]], labels: Sequence[str]) -> Tensor:
    return torch.tensor([labels.index(label) for _, label in pairs])


class Parts(NamedTuple):
    """The files to train and validate on, and the test pictures."""

    train: Path
    valid: Path
    test: Images


def split_pictures(path: Path, folder: Path) -> Parts:
    """Write the training and validation pictures; test on the set's own test part, or on pictures taken from it."""
    if "test" in splits_of(path):
        rest, test = open_images(path, split="train"), open_images(path, split="test")
    else:
        images = open_images(path, label="last")
        rest, test = images.hold_out(N_TEST / len(images), seed=1)
    folder.mkdir(parents=True, exist_ok=True)
    files = {}
    for name, part in zip(("train", "valid"), rest.hold_out(0.1, seed=2), strict=True):
        files[name] = folder / f"{rest.name.partition('.')[0]}.{name}.npz"
        np.savez(files[name], x=part.pixels.transpose(0, 2, 3, 1), y=part.targets)
    return Parts(files["train"], files["valid"], test)


def picture_accuracy(model_folder: Path, test: Images) -> float:
    """Return the percentage of test pictures that a ViT classifies correctly."""
    model = _vit(model_folder)
    with torch.inference_mode():
        predicted = model(normalised(test.pixels, model.config.mean, model.config.std)).argmax(dim=-1).numpy()
    return 100.0 * float((predicted == test.targets).mean())


def _vit(folder: Path) -> Vit:
    return load_model(folder).expect(Vit)


def operations(model: nn.Module, picture: Tensor) -> int:
    """Count the operations of a forward pass for one picture (1, C, H, W): matrix products and convolutions."""
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model.eval()(picture)
    return counter.get_total_flops()


def cnn_accuracy(vit: Path, parts: Parts, n_pictures: int, *, seed: int) -> float:
    """Train a CNN with the ViT's pictures, shifts and flips and as many operations; return its test accuracy."""
    torch.manual_seed(seed)
    images = open_images(parts.train)
    mean, std = [float(images.pixels.mean() / 255)], [float(images.pixels.std() / 255)]
    is_colour = images.pixels.shape[1] == 3
    model = _cnn(images.pixels.shape[1], len(images.labels))
    one = normalised(images.pixels[:1], mean, std)
    n_steps = round(n_pictures * operations(_vit(vit), one) / operations(model, one) / CNN_BATCH)
    model.train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=CNN_RATE, weight_decay=0.05)
    rng = np.random.default_rng(seed)
    for step, rows in zip(range(n_steps), _batches(len(images), rng), strict=False):
        for group in optimiser.param_groups:
            group["lr"] = CNN_RATE * (1.0 - step / n_steps)
        pixels = shift(images.pixels[rows], rng, by=4 if is_colour else 2)
        pixels = flip(pixels, rng) if is_colour else pixels
        logits = model(normalised(pixels, mean, std))
        loss = F.cross_entropy(logits, torch.from_numpy(images.targets[rows]), label_smoothing=0.1)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    model.eval()
    with torch.inference_mode():
        predicted = model(normalised(parts.test.pixels, mean, std)).argmax(dim=-1).numpy()
    return 100.0 * float((predicted == parts.test.targets).mean())


def _batches(n: int, rng: np.random.Generator) -> Iterator[np.ndarray]:
    """Yield the indices of batches of pictures endlessly; each picture comes once per epoch."""
    while True:
        yield from np.array_split(rng.permutation(n), -(-n // CNN_BATCH))


def _cnn(n_channels: int, n_labels: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for n_filters, stride in ((32, 1), (64, 2), (64, 1), (128, 2)):
        layers += [nn.Conv2d(n_channels, n_filters, 3, stride=stride, padding=1), nn.BatchNorm2d(n_filters), nn.ReLU()]
        n_channels = n_filters
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(n_channels, n_labels)
    )
