"""heedful trains, runs and shows Transformers."""

from heedful.errors import UserError

__version__ = "0.1.0"

__all__ = ["UserError", "__version__"]
