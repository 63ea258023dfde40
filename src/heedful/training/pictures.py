"""Pictures for a run, of one size: `data.image_size`, that of the model to start from, or the one that all have."""

from heedful.data.images import Images, open_images, splits_of
from heedful.errors import UserError
from heedful.training.settings import Settings


def open_training(path: str, settings: Settings) -> Images:
    """The part of a place that is for training; image files are resized as `heedful classify` will resize them."""
    images = open_images(
        path,
        split="train" if splits_of(path) else None,
        size=settings.data.image_size,
        n_channels=settings.model.get("n_channels"),
        resize=settings.model.get("resize", "bilinear"),
        label=settings.data.label,
    )
    height, width = images.pixels.shape[2:]
    if height != width:
        raise UserError(
            f"{path}: pictures of {width} x {height} pixels, and only squares can be learned from. Image files are "
            "brought to one by --set data.image_size=32 (or another size), which stretches them; arrays are not"
        )
    return images


def open_valid(path: str, settings: Settings, *, like: Images) -> Images:
    """The part that is for validation, brought to the size and the channels of those for training."""
    return open_images(
        path,
        split="test" if "test" in splits_of(path) else None,
        size=like.pixels.shape[2],
        n_channels=like.pixels.shape[1],
        resize=settings.model.get("resize", "bilinear"),
        label=settings.data.label,
    )
