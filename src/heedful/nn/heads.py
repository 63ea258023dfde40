"""From the last vectors to numbers over the vocabulary."""

from torch import Tensor, nn


class VocabularyHead(nn.Module):
    """Logits: how well each word of the vocabulary fits. Softmax is left to whoever needs probabilities."""

    def __init__(self, *, d_model: int, vocab_size: int, bias: bool = False) -> None:
        super().__init__()
        self.linear = nn.Linear(d_model, vocab_size, bias=bias)

    def share(self, table: nn.Embedding) -> None:
        """Use an embedding's numbers as the weight: the same matrix reads words and writes them (Press & Wolf 2017)."""
        if table.weight.shape != self.linear.weight.shape:
            raise ValueError(f"cannot share {tuple(table.weight.shape)} with {tuple(self.linear.weight.shape)}")
        self.linear.weight = table.weight

    def forward(self, x: Tensor) -> Tensor:  # (B, T, D) -> (B, T, V)
        logits: Tensor = self.linear(x)
        return logits
