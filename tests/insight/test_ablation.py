"""What hiding each word does is what hiding that word does, asked for one by one."""

import numpy as np
import pytest

from heedful.insight import ablation
from heedful.insight.inputs import LookModel
from heedful.insight.look import Look, look
from look_models import OTHER_FAMILIES, SENTENCE, VARIANTS, look_model, other_look_model


def log_probabilities(found: Look) -> np.ndarray:
    return np.array([step.logit - step.log_sum for step in found.steps])


def one_by_one(model: LookModel, found: Look, also: tuple[int, ...] = ()) -> np.ndarray:
    """(T, W): each word hidden in a look of its own, along the same translation."""
    return np.stack(
        [
            log_probabilities(found)
            - log_probabilities(look(model, SENTENCE, target=found.target.text, beam=1, masked_words=[*also, word]))
            for word in range(len(found.source.words))
        ],
        axis=1,
    )


@pytest.mark.parametrize("variant", VARIANTS)
def test_all_words_at_once_are_the_words_one_by_one(variant: str) -> None:
    found = look(look_model(variant), SENTENCE, target="Ein Hund rennt.", beam=1)
    assert found.causes is not None and found.causes.hidden.values.shape == (len(found.steps), len(found.source.words))
    np.testing.assert_allclose(found.causes.hidden.values, one_by_one(look_model(variant), found), atol=1e-4)
    assert np.abs(found.causes.hidden.values).max() > 1e-3


@pytest.mark.parametrize("name", OTHER_FAMILIES)
def test_every_family_is_asked_in_the_same_way(name: str) -> None:
    found = look(other_look_model(name), SENTENCE, target="Ein Hund rennt.", beam=1)
    assert found.causes is not None
    np.testing.assert_allclose(found.causes.hidden.values, one_by_one(other_look_model(name), found), atol=1e-4)


def test_a_few_at_a_time_are_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    at_once = look(look_model(), SENTENCE, beam=2).causes
    monkeypatch.setattr(ablation, "LOGITS_AT_ONCE", 1)  # a pass for each word
    apart = look(look_model(), SENTENCE, beam=2).causes
    assert at_once is not None and apart is not None
    np.testing.assert_allclose(apart.hidden.values, at_once.hidden.values, atol=1e-5)


def test_a_word_that_is_hidden_already_changes_nothing() -> None:
    found = look(look_model(), SENTENCE, target="Ein Hund rennt.", beam=1, masked_words=[1])
    assert found.causes is not None
    assert (found.causes.hidden.values[:, 1] == 0).all() and (found.causes.hidden.values[:, 0] != 0).any()
    np.testing.assert_allclose(found.causes.hidden.values, one_by_one(look_model(), found, (1,)), atol=1e-4)


def test_without_its_only_word_there_is_nothing_to_ask() -> None:
    n_words = len(look(look_model(), SENTENCE, beam=1).source.words)
    assert look(look_model(), SENTENCE, beam=1, masked_words=range(1, n_words)).causes is None
