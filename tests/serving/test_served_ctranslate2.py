"""CTranslate2 behind the server: whoever asks, and with whom, gets what it says offline."""

import asyncio
import random
from pathlib import Path

import pytest
from served import detector, running

from ct2_models import make_engine, make_model
from echo_engine import tokenizers
from heedful.decoding.engines.ct2_speed import Speed
from heedful.decoding.writing.translator import Translator
from heedful.models.find import Reach
from heedful.serving.pairs import Pair, Pairs
from heedful.serving.service import Service
from serve_load import differing, many_texts, random_text

N_TEXTS = 300


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Translator:
    size = tokenizers().source.vocab_size
    model = make_model(source_vocab_size=size, target_vocab_size=size)
    folder: Path = tmp_path_factory.mktemp("ct2") / "model"
    engine = make_engine(model, folder, speed=Speed(inter=2, intra=1, batch=200, beam_batch=200))
    return Translator(engine, tokenizers(), reach=Reach(120))


@pytest.mark.parametrize("beam", [1, 4])
def test_answers_are_those_of_the_engine_offline(translator, beam):
    draw = random.Random(beam)
    texts = [random_text(draw) for _ in range(N_TEXTS)]
    offline = dict(zip(texts, (best[0] for best in translator.search(texts, beam=beam)), strict=True))
    assert len({one.text for one in offline.values()}) > N_TEXTS // 10  # it does not say the same to everybody
    service = Service(Pairs([Pair("en", "fr", translator)]), detector, beam=beam)
    with running(service) as (url, _):
        found = asyncio.run(many_texts(url, texts, n_clients=20))
    assert differing(found, offline) == []
    assert service._batchers["en-fr"].work.batches < N_TEXTS // 3  # they were merged
