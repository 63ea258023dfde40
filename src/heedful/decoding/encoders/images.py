"""Images as a ViT takes them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from heedful.data.images import Picture, normalised, read_image
from heedful.models.vit import Vit

IMAGES_AT_ONCE = 32


def image_tensor(model: Vit, files: Sequence[Picture]) -> Tensor:
    """Resized, normalised, (B, C, H, W)."""
    config = model.config
    pixels = [
        torch.from_numpy(read_image(file, n_channels=config.n_channels, size=config.image_size, resize=config.resize))
        for file in files
    ]
    tensor = normalised(torch.stack(pixels), config.mean, config.std)
    weight = model.patches.projection.weight
    return tensor.to(weight.device, weight.dtype)
