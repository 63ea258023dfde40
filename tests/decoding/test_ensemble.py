"""An ensemble averages the probabilities of its models, step by step."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import heedful
from ct2_models import log_probabilities
from deterministic import fill
from echo_engine import tokenizers
from heedful.cli import main
from heedful.decoding.engines.auto import open_engine
from heedful.decoding.engines.torch_engine import TorchEngine
from heedful.decoding.search.callback import BeamTrace, SearchCallback
from heedful.decoding.search.settings import SearchSettings
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import SPECIAL_IDS, TokenizerConfig, learn_tokenizers
from heedful.text.special_ids import SpecialIds
from tiny_models import PATTERNS, random_model, sentences, tiny_model

REQUESTS = sentences(60, seed=3)
GREEDY = SearchSettings(beam=1, max_len=20)
BEAM = SearchSettings(beam=4, max_len=20, n_best=3)


@pytest.fixture(scope="module")
def models() -> list[Seq2Seq]:
    """Three minds: two of them on the fast step, one (it looks at four tokens only) on the reference."""
    return [tiny_model(1), tiny_model(2, n_layers=1, d_model=8), random_model(3, pattern=PATTERNS["window"])]


def ids(found):
    return [[each.ids for each in several] for several in found]


def mean_log_probabilities(models, request, written):
    said = torch.stack([log_probabilities(model, request, written).exp() for model in models])
    return said.mean(dim=0).log()


@pytest.mark.parametrize("settings", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_a_model_with_itself_is_that_model(settings, models):
    alone, twice = (TorchEngine(models[0], others=others) for others in ([], [models[0]]))
    found, expected = twice.search(REQUESTS, settings), alone.search(REQUESTS, settings)
    assert ids(found) == ids(expected)
    assert [each.score for several in found for each in several] == pytest.approx(
        [each.score for several in expected for each in several], abs=1e-12
    )


@pytest.mark.parametrize("settings", [GREEDY, BEAM], ids=["greedy", "beam"])
def test_a_score_is_that_of_the_mean_of_the_probabilities(settings, models):
    engine = TorchEngine(models[0], others=models[1:])
    for request, several in zip(REQUESTS, engine.search(REQUESTS, settings), strict=True):
        for found in several:
            table = mean_log_probabilities(models, request, found.ids)
            tokens = [*found.ids, SPECIAL_IDS.eos_id][: len(found.ids) + found.complete]
            expected = sum(float(table[place, token]) for place, token in enumerate(tokens))
            assert found.score == pytest.approx(expected, abs=1e-10)


def test_greedy_search_takes_what_is_likeliest_on_average(models):
    engine, differs = TorchEngine(models[0], others=models[1:]), 0
    alone = TorchEngine(models[0]).search(REQUESTS, GREEDY)
    for request, (found,), (own,) in zip(REQUESTS, engine.search(REQUESTS, GREEDY), alone, strict=True):
        table = mean_log_probabilities(models, request, found.ids)
        assert table.argmax(dim=-1).tolist()[: len(found.ids)] == found.ids
        differs += found.ids != own.ids
    assert differs > 10  # else this would say nothing


def test_the_order_of_the_models_and_of_the_sentences_is_nothing(models):
    a, b, _ = models
    engine = TorchEngine(a, others=[b], batch_rows=8)  # few places: new sentences come where others ended
    assert engine.step.refills
    found = ids(engine.search(REQUESTS, BEAM))
    assert found == ids(TorchEngine(b, others=[a]).search(REQUESTS, BEAM))
    assert found == [ids(engine.search([request], BEAM))[0] for request in REQUESTS]
    assert not TorchEngine(a, others=models[1:]).step.refills  # one of them cannot


def test_attention_is_the_mean_of_theirs(models):
    settings = replace(GREEDY, attention=True)
    engine = TorchEngine(models[0], others=models[1:])
    ((found,),) = engine.search(REQUESTS[:1], settings)
    forced = [replace(REQUESTS[0], prefix=found.ids)]
    each = [TorchEngine(model).search(forced, settings)[0][0].attention for model in models]
    rows = torch.tensor([attention[: len(found.ids)] for attention in each], dtype=torch.float64)
    assert torch.allclose(torch.tensor(found.attention, dtype=torch.float64), rows.mean(dim=0), atol=1e-9)


def test_coverage_where_one_model_drops_padding_and_another_keeps_it(models):
    """The long sentence ends first, and its padding goes with it: from the fast step's memory alone."""
    settings = SearchSettings(beam=2, max_len=20, coverage_penalty=0.2)
    engine = TorchEngine(models[0], others=[models[2]], batch_rows=4)
    requests = [replace(REQUESTS[0], source=[5] * n) for n in (60, 3, 4)]
    requests[0] = replace(requests[0], prefix=[SPECIAL_IDS.eos_id])
    together = ids(engine.search(requests, settings))
    assert together == [ids(engine.search([request], settings))[0] for request in requests]


def test_the_diary_of_a_beam_is_theirs_together(models):
    engine = TorchEngine(models[0], others=models[1:])
    trace = BeamTrace()
    [found] = engine.search(REQUESTS[:1], BEAM, callback=SearchCallback(on_candidates=trace.add))
    events = trace.events
    assert events
    assert [each.ids for each in found] == ids(engine.search(REQUESTS[:1], BEAM))[0]


def test_models_that_do_not_fit_are_refused(models):
    with pytest.raises(UserError, match="different sizes"):
        TorchEngine(models[0], others=[random_model(1, vocab_size=21)])
    with pytest.raises(UserError, match="special ids"):
        TorchEngine(models[0], others=[random_model(1, special_ids=SpecialIds(bos_id=1))])


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    size, place = tokenizers().source.vocab_size, tmp_path_factory.mktemp("models")
    made = []
    for name, d_ff, max_len in (("a", 12, 24), ("b", 16, 12)):
        config = Seq2SeqConfig(size, size, d_model=8, n_layers=1, n_heads=2, d_ff=d_ff, max_len=max_len)
        made.append(save_model(place / name, fill(Seq2Seq(config), dtype=torch.float32), tokenizers()))
    return made


def carded(folder: Path, *languages: str) -> Path:
    """One vocabulary for every direction, as the models that come with heedful have."""
    size, listed = tokenizers().source.vocab_size, "".join(f'- "{code}"\n' for code in languages)
    config = Seq2SeqConfig(size, size, d_model=8, n_layers=1, n_heads=2, d_ff=12, max_len=24)
    card = f"---\nlanguage:\n{listed}library_name: heedful\n---\n"
    return save_model(folder, fill(Seq2Seq(config), dtype=torch.float32), tokenizers(), card=card)


def test_models_of_other_languages_are_refused(folders, tmp_path):
    there, back = carded(tmp_path / "there", "en", "fr"), carded(tmp_path / "back", "fr", "en")
    words = "cannot translate together: by their cards the first goes from en to fr, the second from fr to en"
    with pytest.raises(UserError, match=words):
        Translator.load([folders[0], there, back])
    british, many = carded(tmp_path / "british", "en_GB", "FR"), carded(tmp_path / "many", "fr", "en", "de")
    assert Translator.load([there, british, many, folders[0]]).engine.others  # the same two, three, none


def test_an_ensemble_has_no_shortlist(folders):
    """And no other engine is advised, since none has both."""
    for engine in ("auto", "torch"):
        with pytest.raises(UserError, match=r"several models together run on torch, .*; leave it out") as error:
            Translator.load(folders, engine=engine).translate("A dog.", shortlist=True)
        assert "--engine" not in str(error.value)


def test_from_the_command_line_and_from_python(folders, tmp_path, capsys):
    (tmp_path / "in").write_text("A dog.\nTwo cats.\n", encoding="utf-8")
    named = [word for folder in folders for word in ("-m", str(folder))]
    assert main.run(["translate", str(tmp_path / "in"), *named, "--beam", "2", "--format", "jsonl"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    translator = Translator.load(folders)
    assert translator.segmenter.reach.max_len == 12  # that of the shortest
    found = translator.search(["A dog.", "Two cats."], beam=2)
    assert [line["score"] for line in lines] == pytest.approx([each[0].score for each in found])
    alone = Translator.load(folders[0], engine="torch").search(["A dog.", "Two cats."], beam=2)
    assert [each[0].score for each in alone] != pytest.approx([each[0].score for each in found], abs=1e-6)


def test_several_processes_write_what_one_does(folders):
    texts = [f"A dog. {'x' * n}" for n in range(6)]
    translator = Translator.load(folders)
    assert list(translator.stream(texts, block=2, workers=2, max_len=5)) == translator.translate(texts, max_len=5)


@pytest.mark.parametrize("learned_first", [False, True])
def test_the_shortest_reach_counts_whatever_the_order(learned_first, folders, tmp_path):
    size = tokenizers().source.vocab_size
    config = Seq2SeqConfig(size, size, d_model=8, n_layers=1, n_heads=2, d_ff=12, max_len=12, positions="learned")
    learned = save_model(tmp_path / "learned", fill(Seq2Seq(config), dtype=torch.float32), tokenizers())
    order = [learned, folders[1]] if learned_first else [folders[1], learned]
    translator = Translator.load(order, long="whole")
    assert (translator.segmenter.reach.max_len, translator.segmenter.is_hard) == (12, True)
    with pytest.raises(UserError, match="text 1: 18 tokens with the end of the source, and the model takes 12"):
        translator.translate("a sentence of 16")
    assert not Translator.load([learned, *folders], long="whole").segmenter.reach.max_len > 12


def test_look_shows_one_model(folders):
    with pytest.raises(UserError, match="shows one model, and this Translator has several"):
        heedful.look(Translator.load(folders), "A dog.")


def test_what_an_ensemble_cannot_do_is_said(folders, tmp_path):
    with pytest.raises(UserError, match="the list of models is empty"):
        Translator.load([])
    with pytest.raises(UserError, match="one model at a time"):
        open_engine(folders[0], others=folders[1:], engine="ctranslate2")
    with pytest.raises(UserError, match="int8"):
        open_engine(folders[0], others=folders[1:], compute="int8")
    texts = ["a cat and a dog", "two birds"]
    other = learn_tokenizers(texts, texts, TokenizerConfig(kind="char", byte_fallback=False))
    size = other.source.vocab_size
    config = Seq2SeqConfig(size, size, d_model=8, n_layers=1, n_heads=2, d_ff=12, max_len=24)
    folder = save_model(tmp_path / "other", Seq2Seq(config), other)
    with pytest.raises(UserError, match="cannot translate together: the vocabularies of their source differ"):
        Translator.load([folders[0], folder])
