"""What CTranslate2 cannot do with the results of the torch engine, each with the reason, so that `auto` can decide."""

from heedful.decoding.engines.base import DecoderOnlyInfo
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import SearchSettings
from heedful.interop.ctranslate2.conversion import ConversionInfo
from heedful.interop.ctranslate2.library import devices

PARALLEL = "it generates one token at a time, so that it has no parallel decoding"
RANDOM = "its random numbers cannot be set for each text, so that samples would depend on the other texts"


def why_not_device(device: str) -> str | None:
    """Return why CTranslate2 cannot compute on a device; None if it can."""
    if device == "cpu":
        return None  # without looking for GPUs, which takes time
    if device == "mps":
        return "it computes on CPUs and CUDA devices, not on mps"
    there = devices()
    if device in there:
        return None
    return f"it was built without CUDA, or finds no such device here; there is: {', '.join(there)}"


def is_filtered(settings: SearchSettings) -> bool:
    """Whether some tokens are ruled out or made less probable."""
    return bool(
        settings.min_len > 0
        or settings.repetition_penalty != 1.0
        or settings.no_repeat_ngram > 0
        or len(settings.forbidden) > 0
    )


def why_not_settings(settings: SearchSettings, facts: ConversionInfo) -> str | None:
    """Return why CTranslate2 cannot search with these settings; None if it can."""
    if settings.sampling is not None:
        return RANDOM
    if settings.parallel:
        return PARALLEL
    return _why_not_beam(settings, facts.target_vocab_size) if settings.beam > 1 else None


def _why_not_beam(settings: SearchSettings, vocab_size: int) -> str | None:
    # It computes log-softmax after ruling tokens out; heedful's scores are log-probabilities of the model.
    spread = "it gives the probability of what must not be written to other tokens, so that beams differ"
    half = f"a beam must be below half the vocabulary of {vocab_size:,}"
    refusals = {
        "it knows length^alpha, not GNMT's length penalty": settings.length_rule != "power",
        "it stops when enough hypotheses have finished, even if better ones could follow": settings.stop != "patience",
        "it has no penalty for hypotheses that are alike (diversity)": settings.diversity > 0,
        spread: is_filtered(settings),
        "its length penalty would leave the range of float32": abs(settings.length_penalty) > 5,
        half: 2 * settings.beam > vocab_size,
    }
    return next((reason for reason, applies in refusals.items() if applies), None)


def why_not_request(request: Request, settings: SearchSettings, facts: ConversionInfo) -> str | None:
    """Return why CTranslate2 cannot run this request; None if it can."""
    if request.required:
        return "it has no constraint for given words"
    if request.forbidden:
        return "it cannot forbid words of some texts only"
    if request.prefix and settings.beam > 1:
        return "its beams leave the prefix out of the scores"
    most, needed = facts.n_positions, settings.limit(len(request))
    if most is not None and len(request) > most:
        return f"{len(request):,} tokens are more than the {most:,} positions of the converted model"
    if most is not None and needed > most and not facts.learned_positions:
        return f"{needed:,} target tokens are more than the {most:,} positions of the converted model"
    return None


def why_not_prompt(request: Request, settings: SearchSettings, info: DecoderOnlyInfo) -> str | None:
    """Return why CTranslate2 cannot continue this prompt; None if it can."""
    several = len(info.ends) > 1 and settings.beam > 1
    n_read = len(request.source) + settings.limit(len(request)) - 1  # the last token is not read
    refusals = {
        RANDOM: settings.sampling is not None,
        PARALLEL: settings.parallel,
        "its repetition rules do not see the prompt, and banned tokens change its scores": is_filtered(settings)
        or bool(info.special_ids.forbidden_ids),
        "a decoder-only model has no attention to a source, and so no coverage": settings.coverage_penalty > 0,
        "it has no constraint for given words": bool(request.required or request.prefix),
        "its beam contains a text that can end with several ids more than once": several,
        f"{n_read:,} tokens are more than the {info.window:,} that the model reads at once": n_read > info.window,
    }
    reason = next((reason for reason, applies in refusals.items() if applies), None)
    return reason or (_why_not_beam(settings, info.vocab_size) if settings.beam > 1 else None)
