"""ViT: an image is worth 16 x 16 words (Dosovitskiy et al. 2021). Patches in place of tokens, else a plain encoder.

pixels ── cut into patches, embed ── class token before them, + positions ── Encoder (pre-norm), norm ── states ── head
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.config_checks import check_labels, check_shares, check_sizes
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import ClassToken, MaskToken, PatchEmbedding, reordered
from heedful.nn.feedforward import FEED_FORWARDS, FeedForward
from heedful.nn.heads import Classifier, PatchHead, Pooler
from heedful.nn.init import bert as bert_init
from heedful.nn.layers import EncoderLayer, PreNorm
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Learned
from heedful.nn.stacks import Encoder, LastLayer

# Far above any model: a damaged or hostile config.json must be refused, not built for hours.
LARGEST = {
    "image_size": 10**4,
    "patch_size": 10**4,
    "n_channels": 1_000,
    "d_model": 10**6,
    "n_layers": 1_000,
    "n_heads": 10**4,
    "d_ff": 10**7,
}


@dataclass(frozen=True)
class VitConfig:
    image_size: int = 224  # height and width, in pixels
    patch_size: int = 16
    n_channels: int = 3
    d_model: int = 768
    n_layers: int = 12
    n_heads: int = 12
    d_ff: int = 3072
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation: Literal["relu", "gelu", "gelu_tanh", "swish"] = "gelu"
    norm_eps: float = 1e-12
    qkv_bias: bool = True
    head: Literal["classify", "masked_patches", "patch_order", "pool", "none"] = "classify"
    labels: tuple[str, ...] = ()  # of "classify", in the order of their numbers
    multi_label: bool = False  # several labels may be right at once: a sigmoid for each, instead of one softmax
    mean: tuple[float, ...] = (0.5,)  # what is taken off each channel, pixels being from 0 to 1; one for all, or each
    std: tuple[float, ...] = (0.5,)  # and what it is then divided by
    resize: Literal["bilinear", "bicubic", "nearest"] = "bilinear"  # of images that have another size

    def __post_init__(self) -> None:
        check_sizes(self, LARGEST)
        check_shares(self, "dropout", "attention_dropout")
        if not 0.0 < self.norm_eps < 1.0:
            raise UserError(f"'norm_eps' must lie between 0 and 1, found {self.norm_eps}")
        if self.d_model % self.n_heads:
            raise UserError(f"n_heads = {self.n_heads} does not divide d_model = {self.d_model}")
        if self.image_size % self.patch_size:
            raise UserError(f"patch_size = {self.patch_size} does not divide image_size = {self.image_size}")
        check_labels(self.head, self.labels, needed_by=("classify",), multi_label=self.multi_label)
        for name in ("mean", "std"):
            if len(getattr(self, name)) not in (1, self.n_channels):
                raise UserError(f"'{name}' needs one number, or one for each of {self.n_channels} channels")
        if min(self.std) <= 0.0:
            raise UserError(f"'std' must be above 0, found {min(self.std)}")

    @property
    def n_labels(self) -> int:
        return len(self.labels)

    @property
    def n_patches(self) -> int:
        return (self.image_size // self.patch_size) ** 2


class Vit(nn.Module):
    """Pixels in, logits out: of labels, of the pixels of hidden patches, or of the place of each patch."""

    def __init__(self, config: VitConfig) -> None:
        super().__init__()
        self.config = config
        self.patches = PatchEmbedding(
            n_channels=config.n_channels, patch_size=config.patch_size, d_model=config.d_model
        )
        self.class_token = ClassToken(d_model=config.d_model)
        self.mask_token = MaskToken(d_model=config.d_model) if config.head == "masked_patches" else None
        self.positions = Learned(max_len=1 + config.n_patches, d_model=config.d_model)
        self.dropout = Dropout(config.dropout)
        self.encoder = Encoder(
            layers=[_layer(config) for _ in range(config.n_layers)],
            join=LastLayer(),
            final_norm=LayerNorm(config.d_model, eps=config.norm_eps),
        )
        self.head = _head(config)
        bert_init(self)
        nn.init.normal_(self.class_token.vector, std=0.02)

    def forward(self, pixels: Tensor, *, masked: Tensor | None = None) -> Tensor:
        """Normalised pixels (B, C, H, W) -> logits; of which shape, the head says.

        classify: (B, L) · masked_patches: pixels (B, P, C x s x s) · patch_order: (B, P, P) · pool: features (B, D)
        · none: states (B, 1 + P, D)
        """
        logits: Tensor = self.head(self.hidden_states(pixels, masked=masked))
        return logits

    def hidden_states(
        self,
        pixels: Tensor,
        *,
        masked: Tensor | None = None,
        order: Tensor | None = None,
        with_positions: bool = True,
    ) -> Tensor:
        """The last vectors, that of the class token first: (B, 1 + P, D).

        `masked` (B, P), True = hidden, needs head = "masked_patches". With `order` (B, P) place i has patch order[i].
        """
        self.check_size(pixels)
        x = self.patches(pixels)
        if order is not None:
            x = reordered(x, order)
        if masked is not None:
            if self.mask_token is None:
                raise ValueError(f"head = '{self.config.head}' has no vector for hidden patches")
            x = self.mask_token(x, masked)
        x = self.class_token(x)
        places = torch.arange(x.size(1), device=x.device)
        if with_positions:
            x = self.positions(x, places)
        memories: list[Tensor] = self.encoder(self.dropout(x), positions=places)
        return memories[-1]

    def tie(self) -> None:
        """Nothing here is shared; families are loaded alike."""

    def check_size(self, pixels: Tensor) -> None:
        """Refuse images of another size: there is a position for each patch of this one."""
        config = self.config
        wanted = (config.n_channels, config.image_size, config.image_size)
        if tuple(pixels.shape[1:]) != wanted:
            raise UserError(f"images of {tuple(pixels.shape[1:])}, where this model takes {wanted}: resize them first")


def _layer(config: VitConfig) -> EncoderLayer:
    network, activation = FEED_FORWARDS[config.activation]
    assert network is FeedForward
    return EncoderLayer(
        attention=MultiHeadAttention(
            d_model=config.d_model,
            n_heads=config.n_heads,
            bias=config.qkv_bias,
            out_bias=True,
            dropout=config.attention_dropout,
        ),
        feed_forward=FeedForward(d_model=config.d_model, d_ff=config.d_ff, activation=activation),
        attention_residual=PreNorm(LayerNorm(config.d_model, eps=config.norm_eps), config.dropout),
        feed_forward_residual=PreNorm(LayerNorm(config.d_model, eps=config.norm_eps), config.dropout),
    )


def _head(config: VitConfig) -> nn.Module:
    if config.head == "classify":
        return Classifier(d_model=config.d_model, n_labels=config.n_labels)
    if config.head == "masked_patches":
        return PatchHead(d_model=config.d_model, n_outputs=config.n_channels * config.patch_size**2)
    if config.head == "patch_order":
        return PatchHead(d_model=config.d_model, n_outputs=config.n_patches)
    return Pooler(d_model=config.d_model) if config.head == "pool" else nn.Identity()
