"""ViT (Dosovitskiy et al. 2021): an encoder whose tokens are the patches of an image.

pixels ── cut into patches, embed ── class token before them, + positions ── Encoder (pre-norm), norm ── states ── head
"""

import torch
from torch import Tensor, nn

from heedful.errors import UserError
from heedful.models.configs import VitConfig
from heedful.nn.attention import MultiHeadAttention
from heedful.nn.dropout import Dropout
from heedful.nn.embeddings import ClassToken, MaskToken, PatchEmbedding, reordered
from heedful.nn.feedforward import FEED_FORWARDS, FeedForward
from heedful.nn.heads import ClassificationHead, PatchHead, Pooler
from heedful.nn.init import bert as bert_init
from heedful.nn.layers import EncoderLayer, PreNorm
from heedful.nn.norms import LayerNorm
from heedful.nn.positions import Learned
from heedful.nn.stacks import Encoder, LastLayer

__all__ = ["Vit", "VitConfig"]


class Vit(nn.Module):
    """An image encoder with a head: pixels in, logits of labels, pixels of masked patches, or places of patches out.

    >>> import torch
    >>> config = VitConfig(image_size=8, patch_size=4, d_model=32, n_layers=2, n_heads=4, d_ff=64, labels=("a", "b"))
    >>> Vit(config)(torch.rand(5, 3, 8, 8)).shape
    torch.Size([5, 2])
    """

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
        """Return the output of the head for normalized pixels (B, C, H, W).

        By head: classify (B, L) · masked_patches: pixels (B, P, C x s x s) · patch_order (B, P, P) · pool: features
        (B, D) · none: states (B, 1 + P, D)
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
        """Return the last hidden states (B, 1 + P, D), the class token's first.

        `masked` (B, P), True = masked, needs head = "masked_patches". With `order` (B, P), place i gets patch order[i].
        """
        self.check_size(pixels)
        x = self.patches(pixels)
        if order is not None:
            x = reordered(x, order)
        if masked is not None:
            if self.mask_token is None:
                raise ValueError(f"head = '{self.config.head}' has no vector for masked patches")
            x = self.mask_token(x, masked)
        x = self.class_token(x)
        places = torch.arange(x.size(1), device=x.device)
        if with_positions:
            x = self.positions(x, places)
        memories: list[Tensor] = self.encoder(self.dropout(x), positions=places)
        return memories[-1]

    def tie(self) -> None:
        """Do nothing: this family shares no weights. `load_model` calls `tie` for every family."""

    def check_size(self, pixels: Tensor) -> None:
        """Raise a UserError for images of another size: there is a learned position for each patch."""
        config = self.config
        expected = (config.n_channels, config.image_size, config.image_size)
        if tuple(pixels.shape[1:]) != expected:
            raise UserError(
                f"images have the shape {tuple(pixels.shape[1:])} (channels, height, width), but this model takes "
                f"{expected}: resize them first"
            )


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
        return ClassificationHead(d_model=config.d_model, n_labels=config.n_labels)
    if config.head == "masked_patches":
        return PatchHead(d_model=config.d_model, n_outputs=config.n_channels * config.patch_size**2)
    if config.head == "patch_order":
        return PatchHead(d_model=config.d_model, n_outputs=config.n_patches)
    return Pooler(d_model=config.d_model) if config.head == "pool" else nn.Identity()
