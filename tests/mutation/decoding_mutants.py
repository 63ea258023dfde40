"""Bugs to plant in the searches."""

from mutant_kind import Mutant

SEARCH = ("decoding/test_search.py",)
DEVICES = ("decoding/test_devices.py",)
AHEAD = ("decoding/test_parallel_decoding.py",)
TOGETHER = ("decoding/test_ensemble.py",)

IN_DECODING = [
    Mutant(
        "log-probabilities miss the softmax normalizer",
        "decoding/search/hypotheses.py",
        "log_probs: Floats = (self.raw_logits.gather(1, tokens) - self.log_sum[:, None]).cpu()",
        "log_probs: Floats = self.raw_logits.gather(1, tokens).cpu()",
        SEARCH,
    ),
    Mutant(
        "every worker process uses the first device",
        "decoding/worker_pool.py",
        "device=names[number % len(names)]",
        "device=names[0]",
        DEVICES,
    ),
    Mutant(
        "CTranslate2 gets the device name with its index",
        "interop/ctranslate2/library.py",
        '{"device": "cuda", "device_index": cuda_index(device)}',
        '{"device": device}',
        DEVICES,
    ),
    Mutant(
        "CTranslate2 gets a device that it does not support",
        "decoding/engines/ctranslate2_support.py",
        "    if device in there:\n",
        "    if device:\n",
        DEVICES,
    ),
    Mutant(
        "top-k over chunks of the vocabulary reads the wrong chunk",
        "decoding/search/beam_search.py",
        "inside = body[torch.arange(n), chunk]",
        "inside = body[torch.arange(n), chunk.sort().values]",
        SEARCH,
    ),
    Mutant(
        "the cache is reordered by the wrong parents",
        "decoding/search/beam_search.py",
        "return (parents + np.arange(len(live))[:, None] * live.width).ravel()",
        "return (np.sort(parents) + np.arange(len(live))[:, None] * live.width).ravel()",
        SEARCH,
    ),
    Mutant(
        "hypotheses' tokens are not reordered by their parents",
        "decoding/search/hypotheses.py",
        "self.ids = self.ids[slots, parents]",
        "pass",
        SEARCH,
    ),
    Mutant(
        "ended candidates outside the beam are finished too",
        "decoding/search/beam_search.py",
        "first = slice(0, live.width)",
        "first = slice(0, None)",
        SEARCH,
    ),
    Mutant(
        "the length penalty does not count the end token",
        "decoding/search/hypotheses.py",
        "normalized = self.normalized_score(slot, row, score, len(ids) + complete)",
        "normalized = self.normalized_score(slot, row, score, max(1, len(ids)))",
        SEARCH,
    ),
    Mutant(
        "all rows of a new beam start with score zero",
        "decoding/search/hypotheses.py",
        "self.scores[slots, 1:] = -np.inf",
        "self.scores[slots, 1:] = 0.0",
        SEARCH,
    ),
    Mutant(
        "the exact stop bounds future scores by the next length only",
        "decoding/search/beam_search.py",
        "lengths = (float(live.lengths[slot]) + 1, float(live.limits[slot]))",
        "lengths = (float(live.lengths[slot]) + 1,)",
        SEARCH,
    ),
    Mutant(
        "a refilled row's positions count from the start of the batch",
        "decoding/steps/row_cache.py",
        "return self.length - self.starts",
        "return self.length - 0 * self.starts",
        SEARCH,
    ),
    Mutant(
        "a refilled row attends to the past of the previous sentence",
        "decoding/steps/row_cache.py",
        "if not self.is_mixed:",
        "if True:",
        SEARCH,
    ),
    Mutant(
        "a refilled row attends to source padding",
        "decoding/steps/fast_seq2seq.py",
        "self.real[slots] = F.pad(real, (0, self.real.size(1) - width))",
        "self.real[slots] = True",
        SEARCH,
    ),
    Mutant(
        "columns dropped from the front of the cache still count",
        "decoding/steps/row_cache.py",
        "self.starts = self.starts - self.first + n_before",
        "self.starts = self.starts + n_before",
        SEARCH,
    ),
    Mutant(
        "samples depend on the row in the batch",
        "decoding/search/sampling.py",
        "np.random.default_rng([sampling.seed, text, int(length), segment])",
        "np.random.default_rng([sampling.seed, len(live), int(length), segment])",
        SEARCH,
    ),
    Mutant(
        "n-gram blocking compares a tail that is one token too long",
        "decoding/search/logits_processors.py",
        "tail = ids[len(ids) - n + 1 :]",
        "tail = ids[len(ids) - n :]",
        SEARCH,
    ),
    Mutant(
        "required words may be missing at the end",
        "decoding/search/constrained_beam_search.py",
        "if have == total and len(ending) < live.width:",
        "if len(ending) < live.width:",
        SEARCH,
    ),
    Mutant(
        "parallel decoding keeps rejected tokens in the cache",
        "decoding/search/parallel_decoding.py",
        "step.truncate(len(ids))",
        "step.truncate(len(ids) + 1)",
        AHEAD,
    ),
    Mutant(
        "parallel decoding accepts a prediction after a rejected token",
        "decoding/search/parallel_decoding.py",
        "settled = predicted[: n_right + 1]",
        "settled = predicted[: n_right + 2]",
        AHEAD,
    ),
    Mutant(
        "an ensemble averages log-probabilities",
        "decoding/steps/ensemble.py",
        "log_probs.logsumexp(dim=0)",
        "log_probs.mean(dim=0)",
        TOGETHER,
    ),
    Mutant(
        "only the first model of an ensemble reorders its cache",
        "decoding/steps/ensemble.py",
        "        for state in self.states:\n            state.reorder(rows)",
        "        self.states[0].reorder(rows)",
        TOGETHER,
    ),
    Mutant(
        "only the first model of an ensemble is refilled",
        "decoding/steps/ensemble.py",
        "            step.replace(own, slots, sources)",
        "            step is self.steps[0] and step.replace(own, slots, sources)",
        TOGETHER,
    ),
    Mutant(
        "models with different vocabularies form an ensemble",
        "decoding/engines/auto.py",
        "            if ours != theirs:\n",
        "            if len(ours) == 0:\n",
        TOGETHER,
    ),
]
