"""How well the model does on pairs that it never trains on."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from heedful.data.batch import Batch, collate
from heedful.data.batching import plan_batches
from heedful.data.corpus import Example
from heedful.decoding.translate import translate_greedily
from heedful.evaluation.scores import Score, bleu, chrf
from heedful.models.seq2seq import Seq2Seq
from heedful.text import Tokenizers
from heedful.training.objectives import token_loss


@dataclass(frozen=True)
class Validation:
    loss: float  # per target token, without smoothing
    perplexity: float
    bleu: float
    chrf: float
    scores: tuple[Score, ...]  # the two, with their signatures
    hypotheses: list[str]

    def score(self, metric: str) -> float:
        """What the settings call better, as a number of which more is better."""
        return {"bleu": self.bleu, "chrf": self.chrf, "loss": -self.loss}[metric]


class Validator:
    """The validation pairs, tokenised and cut into batches once."""

    def __init__(
        self, examples: Sequence[Example], tokenizers: Tokenizers, *, batch_tokens: int, max_len: int, sentences: int
    ) -> None:
        self.examples = examples
        self.tokenizers = tokenizers
        self.batches = _batches(examples, tokenizers, batch_tokens=batch_tokens, max_len=max_len)
        self.chosen = list(examples[:sentences])

    @torch.inference_mode()
    def __call__(self, model: Seq2Seq) -> Validation:
        """The scores of the model, which is left in the mode it was in."""
        was_training = model.training
        model.eval()
        try:
            loss = self._loss(model)
            hypotheses = translate_greedily(model, self.tokenizers, [example.source for example in self.chosen])
        finally:
            model.train(was_training)
        references = [[example.target for example in self.chosen]]
        scores = (bleu(hypotheses, references), chrf(hypotheses, references)) if hypotheses else ()
        return Validation(
            loss=loss,
            perplexity=math.exp(min(loss, 700.0)),
            bleu=scores[0].value if scores else 0.0,
            chrf=scores[1].value if scores else 0.0,
            scores=scores,
            hypotheses=hypotheses,
        )

    def _loss(self, model: Seq2Seq) -> float:
        device = next(model.parameters()).device
        total, n_tokens = 0.0, 0
        for batch in self.batches:
            on_device = batch.to(device)
            memory = model.encode(on_device.source, on_device.source_mask)
            states = model.states(on_device.target_in, memory, target_mask=on_device.target_mask)
            total += float(token_loss(model, states, on_device, label_smoothing=0.0))
            n_tokens += batch.n_target_tokens
        return total / n_tokens


def _batches(examples: Sequence[Example], tokenizers: Tokenizers, *, batch_tokens: int, max_len: int) -> list[Batch]:
    sources = [np.array(ids) for ids in tokenizers.source.encode_batch([example.source for example in examples])]
    targets = [np.array(ids) for ids in tokenizers.target.encode_batch([example.target for example in examples])]
    lengths = [np.array([len(ids) + 1 for ids in side]) for side in (sources, targets)]
    plan = plan_batches(*lengths, batch_tokens=batch_tokens, max_len=max_len, seed=0, epoch=0)
    return [collate([sources[i] for i in numbers], [targets[i] for i in numbers], numbers) for numbers in plan]
