"""A model from its config, with the numbers that a run begins with; and the ids that a tokenizer keeps for itself."""

from typing import Any

import torch

from heedful.models.folder import FAMILIES, Model
from heedful.text import Tokenizer
from heedful.training.settings import Settings


def build(config: Any, settings: Settings) -> Model:
    torch.manual_seed(settings.run.seed)  # the same first weights on every rank
    return FAMILIES[settings.family][1](config)


def protected_ids(tokenizer: Tokenizer) -> list[int]:
    """Ids that are not text: never hidden, never drawn in place of others."""
    special = tokenizer.special
    named = [special.pad, special.unk, special.start, special.end]
    return named if special.mask is None else [*named, special.mask]
