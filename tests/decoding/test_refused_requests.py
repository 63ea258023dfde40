"""Ids outside the vocabulary, bad seeds and impossible texts are refused with equal messages by both engines."""

import pytest

from ct2_models import VOCAB, make_engine, make_model
from gpt_writers import make_gpt, make_writer
from heedful.cli.main import run
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.callback import BeamTrace, SearchCallback
from heedful.decoding.search.request import Request
from heedful.decoding.search.settings import Sampling, SearchSettings, search_settings
from heedful.errors import UserError

OUTSIDE = [-1, VOCAB, 99_999]
GREEDY, BEAM = SearchSettings(beam=1, max_len=6), SearchSettings(beam=3, max_len=6)


@pytest.fixture(scope="module")
def engines(tmp_path_factory) -> dict:
    model, gpt, place = make_model(), make_gpt(), tmp_path_factory.mktemp("ids")
    return {
        "torch": TorchEngine(model),
        "ctranslate2": make_engine(model, place / "seq2seq"),
        "torch writer": TorchEngine(gpt),
        "ctranslate2 writer": make_writer(gpt, place / "gpt"),
    }


@pytest.mark.parametrize("seed", [-1, -(10**30), 10**30])
def test_a_seed_that_is_none_is_refused(seed, capsys):
    with pytest.raises(UserError, match="'seed' must lie between 0 and"):
        Sampling(seed=seed)
    with pytest.raises(UserError, match=f"'seed' must lie between.*found {seed}"):
        search_settings({"sampling": {"seed": seed}})
    assert run(["translate", "x", "--set", f"sampling.seed={seed}"]) == 1
    assert "'seed' must lie between" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["torch", "ctranslate2", "torch writer", "ctranslate2 writer"])
@pytest.mark.parametrize("number", OUTSIDE)
def test_an_id_outside_of_the_vocabulary_is_refused_in_words(engines, name, number):
    engine = engines[name]
    words = f"ids of this model lie between 0 and {VOCAB - 1}, found {number}"
    with pytest.raises(UserError, match=f"'source': {words}"):
        engine.search([Request([5, 6]), Request([7, number])], GREEDY)
    if "writer" in name:
        with pytest.raises(UserError, match=f"'source': {words}"):
            list(engine.stream(Request([7, number]), GREEDY))
        return
    with pytest.raises(UserError, match=f"'prefix': {words}"):
        engine.search([Request([5, 6], prefix=[7, number])], GREEDY)
    for settings in (SearchSettings(beam=1, max_len=6, forbidden=(9, number)),):
        with pytest.raises(UserError, match=f"'forbidden': {words}"):
            engine.search([Request([5, 6])], settings)


@pytest.mark.parametrize("number", OUTSIDE)
def test_in_torch_the_same_of_what_only_torch_can(engines, number):
    words = f"lie between 0 and {VOCAB - 1}, found {number}"
    for name in ("torch", "torch writer"):
        with pytest.raises(UserError, match=f"'required': ids of this model {words}"):
            engines[name].search([Request([5, 6], required=[[7], [8, number]])], BEAM)
        with pytest.raises(UserError, match=f"'forbidden': ids of this model {words}"):
            engines[name].search([Request([5, 6], forbidden=[[8, number]])], BEAM)
        with pytest.raises(UserError, match=f"'forbidden': ids of this model {words}"):
            engines[name].search([Request([5, 6])], SearchSettings(beam=3, max_len=6, forbidden=(number,)))
    with pytest.raises(UserError, match=words):
        engines["torch"].search([Request([number])], BEAM, callback=SearchCallback(on_candidates=BeamTrace().add))


@pytest.mark.parametrize("name", ["torch", "ctranslate2"])
def test_the_first_and_the_last_id_are_ids(engines, name):
    settings = SearchSettings(beam=1, max_len=6, forbidden=(0, VOCAB - 1))
    ((best,),) = engines[name].search([Request([0, VOCAB - 1], prefix=[VOCAB - 1])], settings)
    assert best.ids[0] == VOCAB - 1


def test_required_words_that_do_not_fit_are_refused(engines):
    request = Request([5, 6], required=[[7, 8, 9, 10], [11, 12, 13]])
    with pytest.raises(UserError, match="'required': 7 tokens must be written, and at most 6 may be; raise max_len"):
        engines["torch"].search([Request([5]), request], BEAM)
    ((best,),) = engines["torch"].search([request], SearchSettings(beam=3, max_len=7))
    assert sorted(best.ids) == [7, 8, 9, 10, 11, 12, 13]


@pytest.mark.parametrize(
    ("request_", "settings"),
    [
        (Request([5, 6], prefix=[20, 21, 22, 23], required=[[7, 8, 9, 10]]), BEAM),
        (Request([5, 6], required=[[7]]), SearchSettings(beam=3, max_len=6, forbidden=(7,))),
    ],
    ids=["no room after the prefix", "a required token is forbidden"],
)
def test_required_words_that_cannot_be_found_are_refused(engines, request_, settings):
    with pytest.raises(UserError, match="'required': no text of at most 6 tokens was found that has all of"):
        engines["torch"].search([request_], settings)


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3}, {"sampling": Sampling()}])
def test_forbidding_everything_is_refused(engines, options):
    settings = SearchSettings(max_len=6, forbidden=tuple(range(VOCAB)), **options)
    for name in ("torch", "torch writer", *(["ctranslate2"] if options == {"beam": 1} else [])):
        with pytest.raises(UserError, match="'forbidden': leaves nothing to write"):
            engines[name].search([Request([5, 6])], settings)
    with pytest.raises(UserError, match="'forbidden': leaves nothing to write"):
        list(engines["torch writer"].stream(Request([5, 6]), settings))


@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 3}, {"sampling": Sampling()}])
def test_filters_that_leave_nothing_together_are_refused(engines, options):
    settings = SearchSettings(max_len=9, min_len=9, no_repeat_ngram=1, forbidden=tuple(range(4, VOCAB)), **options)
    with pytest.raises(UserError, match="nothing is left to write: 'forbidden', 'no_repeat_ngram' and 'min_len'"):
        engines["torch"].search([Request([5, 6])], settings)
