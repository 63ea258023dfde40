"""Files -> batches: read, check and clean corpora, tokenise them into shards, and load batches of tensors.

    corpus = open_corpus(["train.en", "train.de"])
    print(check_corpus(corpus).suspicious_share)
    shards = prepare(corpus, tokenizers, "shards", fingerprint=corpus.fingerprint())
    loader = Loader(PairDataset(shards, special_ids=SpecialIds()), batch_tokens=4096, seed=1)
    batch = next(loader)

The names below are imported from their modules when they are first used, because some of them import torch.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heedful.data.augment import InformalCopies
    from heedful.data.batch_sampler import EpochPlan, plan_batches, real_share, split_rows
    from heedful.data.binarize import prepare
    from heedful.data.check import Report, check_corpus, read_test_sources
    from heedful.data.clean import write_clean
    from heedful.data.collate import (
        IGNORE_INDEX,
        Batch,
        ImageBatch,
        LabelBatch,
        LmBatch,
        TensorBatch,
        collate_labels,
        collate_pairs,
        collate_windows,
        pad_sources,
    )
    from heedful.data.conll import Sentence, read_tagged, spans_of
    from heedful.data.corpus import Corpus, Example, open_corpus, read_labelled, read_text
    from heedful.data.datasets import (
        ClassificationDataset,
        DenoisingDataset,
        DocumentChunks,
        MlmDataset,
        MlmMasking,
        PackedLmDataset,
        PairDataset,
        RandomWindowDataset,
        TaggingDataset,
    )
    from heedful.data.demo import DemoCorpus, demo_corpus
    from heedful.data.images import (
        ImageDataset,
        Images,
        ImageTransform,
        flip,
        normalised,
        open_images,
        read_image,
        shift,
        splits_of,
    )
    from heedful.data.loader import Dataset, Loader, LoaderState
    from heedful.data.noising import corrupt_spans, infill, mask_tokens, permute_sentences
    from heedful.data.shards import Shards
    from heedful.data.splits import join_lines, split_documents

__all__ = [
    "IGNORE_INDEX",
    "Batch",
    "ClassificationDataset",
    "Corpus",
    "Dataset",
    "DemoCorpus",
    "DenoisingDataset",
    "DocumentChunks",
    "EpochPlan",
    "Example",
    "ImageBatch",
    "ImageDataset",
    "ImageTransform",
    "Images",
    "InformalCopies",
    "LabelBatch",
    "LmBatch",
    "Loader",
    "LoaderState",
    "MlmDataset",
    "MlmMasking",
    "PackedLmDataset",
    "PairDataset",
    "RandomWindowDataset",
    "Report",
    "Sentence",
    "Shards",
    "TaggingDataset",
    "TensorBatch",
    "check_corpus",
    "collate_labels",
    "collate_pairs",
    "collate_windows",
    "corrupt_spans",
    "demo_corpus",
    "flip",
    "infill",
    "join_lines",
    "mask_tokens",
    "normalised",
    "open_corpus",
    "open_images",
    "pad_sources",
    "permute_sentences",
    "plan_batches",
    "prepare",
    "read_image",
    "read_labelled",
    "read_tagged",
    "read_test_sources",
    "read_text",
    "real_share",
    "shift",
    "spans_of",
    "split_documents",
    "split_rows",
    "splits_of",
    "write_clean",
]

_MODULES = {
    "IGNORE_INDEX": "collate",
    "Batch": "collate",
    "ClassificationDataset": "datasets",
    "Corpus": "corpus",
    "Dataset": "loader",
    "DemoCorpus": "demo",
    "DenoisingDataset": "datasets",
    "DocumentChunks": "datasets",
    "EpochPlan": "batch_sampler",
    "Example": "corpus",
    "ImageBatch": "collate",
    "ImageDataset": "images",
    "ImageTransform": "images",
    "Images": "images",
    "InformalCopies": "augment",
    "LabelBatch": "collate",
    "LmBatch": "collate",
    "Loader": "loader",
    "LoaderState": "loader",
    "MlmDataset": "datasets",
    "MlmMasking": "datasets",
    "PackedLmDataset": "datasets",
    "PairDataset": "datasets",
    "RandomWindowDataset": "datasets",
    "Report": "check",
    "Sentence": "conll",
    "Shards": "shards",
    "TaggingDataset": "datasets",
    "TensorBatch": "collate",
    "check_corpus": "check",
    "collate_labels": "collate",
    "collate_pairs": "collate",
    "collate_windows": "collate",
    "corrupt_spans": "noising",
    "demo_corpus": "demo",
    "flip": "images",
    "infill": "noising",
    "join_lines": "splits",
    "mask_tokens": "noising",
    "normalised": "images",
    "open_corpus": "corpus",
    "open_images": "images",
    "pad_sources": "collate",
    "permute_sentences": "noising",
    "plan_batches": "batch_sampler",
    "prepare": "binarize",
    "read_image": "images",
    "read_labelled": "corpus",
    "read_tagged": "conll",
    "read_test_sources": "check",
    "read_text": "corpus",
    "real_share": "batch_sampler",
    "shift": "images",
    "spans_of": "conll",
    "split_documents": "splits",
    "split_rows": "batch_sampler",
    "splits_of": "images",
    "write_clean": "clean",
}


def __getattr__(name: str) -> object:
    if name in _MODULES:
        return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
