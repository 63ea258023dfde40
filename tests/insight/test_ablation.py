"""The effect of each source word equals that of a look with only this word masked."""

import numpy as np
import pytest

from heedful.insight import ablation
from heedful.insight.inputs import LookModel
from heedful.insight.look import Look, look
from look_models import OTHER_FAMILIES, SENTENCE, VARIANTS, look_model, other_look_model


def log_probabilities(result: Look) -> np.ndarray:
    return np.array([step.logit - step.log_sum for step in result.steps])


def one_by_one(model: LookModel, result: Look, also: tuple[int, ...] = ()) -> np.ndarray:
    """Return the effects (T, W) of masking each word in a separate look, along the same translation."""
    return np.stack(
        [
            log_probabilities(result)
            - log_probabilities(look(model, SENTENCE, target=result.target.text, beam=1, masked_words=[*also, word]))
            for word in range(len(result.source.words))
        ],
        axis=1,
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_occlusion_equals_masking_each_word_by_itself(variant: str) -> None:
    result = look(look_model(variant), SENTENCE, target="Ein Hund rennt.", beam=1)
    assert result.causes is not None and result.causes.hidden.values.shape == (
        len(result.steps),
        len(result.source.words),
    )
    np.testing.assert_allclose(result.causes.hidden.values, one_by_one(look_model(variant), result), atol=1e-4)
    assert np.abs(result.causes.hidden.values).max() > 1e-3


@pytest.mark.parametrize("name", OTHER_FAMILIES)
def test_occlusion_of_every_family(name: str) -> None:
    result = look(other_look_model(name), SENTENCE, target="Ein Hund rennt.", beam=1)
    assert result.causes is not None
    np.testing.assert_allclose(result.causes.hidden.values, one_by_one(other_look_model(name), result), atol=1e-4)


def test_occlusion_in_small_batches_gives_the_same_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = look(look_model(), SENTENCE, beam=2).causes
    monkeypatch.setattr(ablation, "LOGITS_AT_ONCE", 1)  # a pass for each word
    apart = look(look_model(), SENTENCE, beam=2).causes
    assert at_once is not None and apart is not None
    np.testing.assert_allclose(apart.hidden.values, at_once.hidden.values, atol=1e-5)


def test_a_masked_word_has_no_effect() -> None:
    result = look(look_model(), SENTENCE, target="Ein Hund rennt.", beam=1, masked_words=[1])
    assert result.causes is not None
    assert (result.causes.hidden.values[:, 1] == 0).all() and (result.causes.hidden.values[:, 0] != 0).any()
    np.testing.assert_allclose(result.causes.hidden.values, one_by_one(look_model(), result, (1,)), atol=1e-4)


def test_one_visible_word_cannot_be_masked() -> None:
    n_words = len(look(look_model(), SENTENCE, beam=1).source.words)
    assert look(look_model(), SENTENCE, beam=1, masked_words=range(1, n_words)).causes is None
