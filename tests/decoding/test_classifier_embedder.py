"""Classification and embedding equal the model's own output, in the order of the inputs."""

from pathlib import Path

import pytest
import torch

from deterministic import fill
from encoder_models import SIZES, bert_folder, own_tokenizers, picture, vit_folder
from heedful import UserError, load_model, pipeline
from heedful.data import IGNORE_INDEX, Sentence, pad_sources
from heedful.decoding.classifier import Classifier
from heedful.decoding.embedder import Embedder
from heedful.decoding.encoder_inputs import image_tensor, make_pair
from heedful.decoding.generator import Generator
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import save_model
from heedful.models.seq2seq import Seq2Seq, Seq2SeqConfig
from heedful.text import SPECIAL_IDS
from heedful.text.special_ids import SpecialIds
from heedful.training.tasks.token_classification import encode

TEXTS = ["a dog runs", "", "two dogs run on the beach, and a man looks at them", "a cat"]
LABELS = {"head": "classify", "labels": ("bad", "good", "so-so")}


@pytest.fixture(scope="module")
def tokenizers():
    return own_tokenizers()


@pytest.fixture(scope="module")
def mood(tokenizers, tmp_path_factory) -> Path:
    return bert_folder(tmp_path_factory.mktemp("mood") / "model", tokenizers, **LABELS)


def logits_of(folder: Path, text: str) -> torch.Tensor:
    loaded = load_model(folder)
    special_ids = loaded.model.config.special_ids
    ids = [special_ids.start_id, *loaded.tokenizers.source.encode(text), special_ids.eos_id]
    return loaded.model(torch.tensor([ids]))[0].detach()


def test_every_label_has_its_probability(mood: Path) -> None:
    found = Classifier.load(mood).classify(TEXTS)
    for text, labels in zip(TEXTS, found, strict=True):
        shares = logits_of(mood, text).softmax(dim=-1)
        wanted = dict(zip(LABELS["labels"], shares.tolist(), strict=True))
        assert {one.label: pytest.approx(one.score, abs=1e-6) for one in labels} == wanted
        assert [one.score for one in labels] == sorted((one.score for one in labels), reverse=True)


def test_labels_that_do_not_exclude_each_other(tokenizers, tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "model", tokenizers, **{**LABELS, "multi_label": True})
    [found] = Classifier.load(folder).classify(["a dog"])
    wanted = logits_of(folder, "a dog").sigmoid().tolist()
    assert {one.label: pytest.approx(one.score, abs=1e-6) for one in found} == dict(
        zip(LABELS["labels"], wanted, strict=True)
    )


def test_a_word_has_the_label_of_its_first_token(tokenizers, tmp_path: Path) -> None:
    labels = ("O", "B", "I")
    folder = bert_folder(tmp_path / "model", tokenizers, head="tag", labels=labels)
    texts = [*TEXTS, "The noun1  runs\tunbelievably", "\u200b dog"]
    found = Classifier.load(folder).label_words(texts)
    model, tokenizer = load_model(folder).model, tokenizers.source
    for text, words in zip(texts, found, strict=True):
        sentence = Sentence(tuple(text.split()), tuple("B" for _ in text.split()))
        ids, taught = encode(sentence, tokenizer, labels, 38)  # as training does
        row = torch.tensor([[model.config.special_ids.start_id, *ids, model.config.special_ids.eos_id]])
        shares = model(row)[0, 1:-1].softmax(dim=-1)[torch.from_numpy(taught != IGNORE_INDEX)]
        assert [(one.word, one.label) for one in words] == [
            (word, labels[number]) for word, number in zip(sentence.words, shares.argmax(dim=-1).tolist(), strict=True)
        ]
        assert [one.score for one in words] == pytest.approx(shares.max(dim=-1).values.tolist(), abs=1e-6)


def test_words_beyond_the_longest_have_no_label_and_are_counted(tokenizers, tmp_path: Path) -> None:
    classifier = Classifier.load(bert_folder(tmp_path / "m", tokenizers, head="tag", labels=("O", "B")))
    [words] = classifier.label_words(["a " * 100])
    assert [word.position for word in words] == list(range(1, 39))
    assert classifier.truncation.warnings() == ["1 line was cut to the 40 tokens that the model takes"]


def test_what_is_too_long_is_cut_and_counted(mood: Path) -> None:
    classifier = Classifier.load(mood)
    classifier.classify(["a dog runs", "a dog " * 100])
    assert classifier.truncation.warnings() == ["1 line was cut to the 40 tokens that the model takes"]


def test_an_image_has_labels(tmp_path: Path) -> None:
    folder = vit_folder(tmp_path / "vit")
    files = [picture(tmp_path / f"{n}.png", seed=n) for n in range(3)]
    classifier = Classifier.load(folder)
    wanted = classifier.model(image_tensor(classifier.model, files)).softmax(dim=-1)
    for labels, shares in zip(classifier.classify(files), wanted, strict=True):
        assert {one.label: pytest.approx(one.score, abs=1e-6) for one in labels} == dict(
            zip(("cat", "dog", "bird"), shares.tolist(), strict=True)
        )


def test_the_pipelines_answer_as_transformers_4_did(mood: Path, tmp_path: Path) -> None:
    pipe = pipeline("text-classification", model=mood)
    [one] = pipe("a dog")
    assert sorted(one) == ["label", "score"]
    assert pipe(["a dog", "a cat"])[0] == one
    assert pipe(text for text in ("a dog", "a cat")) == pipe(["a dog", "a cat"])
    assert pipe("a dog", top_k=2)[0] == one and len(pipe("a dog", top_k=2)) == 2
    assert len(pipe(["a dog"], top_k=None)[0]) == 3
    assert sum(found["score"] for found in pipe("a dog", top_k=None)) == pytest.approx(1)
    assert pipeline("sentiment-analysis", model=mood)("a dog") == [one]
    pipe = pipeline("image-classification", model=vit_folder(tmp_path / "vit"))
    file = picture(tmp_path / "a.png")
    assert [sorted(found) for found in pipe(file)] == [["label", "score"]] * 3
    [[first], [second]] = pipe([file, file], top_k=1)
    assert first["label"] == second["label"] == pipe(file)[0]["label"]
    assert pipe(iter([file, file]), top_k=1) == [[first], [second]]
    with pytest.raises(UserError, match="takes text"):
        pipeline("image-classification", model=mood)
    with pytest.raises(UserError, match="takes images"):
        pipeline("text-classification", model=tmp_path / "vit")
    with pytest.raises(UserError, match="top_k"):
        pipe(file, top_k=0)


def test_all_scores_have_the_shapes_of_transformers_4(mood: Path) -> None:
    pipe = pipeline("text-classification", model=mood)
    with torch.no_grad():  # so that the likeliest is not the first
        pipe.classifier.model.head.linear.bias += torch.tensor([0.0, 1.0, 2.0])
    ranked = pipe("a dog", top_k=None)
    assert [one["label"] for one in ranked] != list(LABELS["labels"])
    assert [one["score"] for one in ranked] == sorted((one["score"] for one in ranked), reverse=True)
    [by_label] = pipe("a dog", return_all_scores=True)  # a list in a list, in the order of the labels
    assert [one["label"] for one in by_label] == list(LABELS["labels"])
    assert sorted(by_label, key=lambda one: -one["score"]) == ranked
    assert pipe(["a dog", "a cat"], return_all_scores=True)[0] == by_label
    assert pipe("a dog", return_all_scores=False) == pipe("a dog") == [ranked[0]]
    assert pipe("a dog", return_all_scores=True, top_k=1) == pipe("a dog", top_k=1)


PAIR = {"text": "a dog runs", "text_pair": "two dogs run on the beach"}


def test_a_pair_has_two_segments(mood: Path) -> None:
    loaded = load_model(mood)
    special_ids, tokenizer = loaded.model.config.special_ids, loaded.tokenizers.source
    first, second = (tokenizer.encode(PAIR[name]) for name in ("text", "text_pair"))
    ids = [special_ids.start_id, *first, special_ids.eos_id, *second, special_ids.eos_id]
    segments = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    shares = loaded.model(torch.tensor([ids]), segments=torch.tensor([segments]))[0].softmax(dim=-1).tolist()
    pipe = pipeline("text-classification", model=mood)
    found = {one["label"]: pytest.approx(one["score"], abs=1e-6) for one in pipe(PAIR, top_k=None)}
    assert found == dict(zip(LABELS["labels"], shares, strict=True))
    [one], [alone], [same] = pipe([PAIR, "a cat", {"text": "a cat"}], top_k=1)  # in one batch, padded
    assert [one, pipe([PAIR])[0], pipe(PAIR)] == [pytest.approx(pipe(PAIR, top_k=1)[0], abs=1e-6)] * 3
    assert [alone, same] == [pytest.approx(pipe("a cat")[0], abs=1e-6)] * 2


def test_the_longer_text_of_a_pair_is_cut_first(mood: Path) -> None:
    config = load_model(mood).model.config
    row = make_pair(list(range(100, 150)), list(range(200, 210)), config)
    assert row.ids[1:-1] == [*range(100, 127), config.special_ids.eos_id, *range(200, 210)]
    assert (len(row.ids), row.n_cut, row.second) == (40, 23, 29)
    row = make_pair(list(range(100, 150)), list(range(200, 250)), config)
    assert (len(row.ids), row.second) == (40, 21)


@pytest.mark.parametrize("bad", [5, None, ["a", "b"], {"text": 5}, {"text": "a", "pair": "b"}, {"text_pair": "b"}])
def test_what_is_no_text_is_refused(bad: object, mood: Path) -> None:
    pipe = pipeline("text-classification", model=mood)
    with pytest.raises(UserError, match="takes texts, and pairs"):
        pipe([bad])
    if not isinstance(bad, list):
        with pytest.raises(UserError, match="takes texts, and pairs"):
            pipe(bad)


def test_an_image_of_pillows_is_as_its_file(tmp_path: Path) -> None:
    from PIL import Image

    pipe = pipeline("image-classification", model=vit_folder(tmp_path / "vit"))
    files = [picture(tmp_path / f"{n}.png", seed=n) for n in range(2)]
    images = [Image.open(file) for file in files]
    assert pipe(images[0]) == pipe(files[0])
    assert pipe(images) == pipe(files) and pipe([images[1].convert("RGBA")]) == pipe([files[1]])
    with pytest.raises(UserError, match="downloads no images"):
        pipe("https://example.org/dog.png")
    with pytest.raises(UserError, match="no such file"):
        pipe(tmp_path / "nowhere.png")
    with pytest.raises(UserError, match="an image must be the name"):
        pipe(5)


def test_the_pipelines_take_what_changes_nothing(mood: Path, tmp_path: Path) -> None:
    usual = {"truncation": True, "padding": True, "batch_size": 2}
    pipe = pipeline("text-classification", model=mood)
    assert pipe("a dog", **usual, max_length=512) == pipe("a dog")
    assert pipe("a dog " * 60, **usual) == pipe("a dog " * 60)
    with pytest.raises(UserError, match="max_length = 8: a text is cut to the 40 tokens"):
        pipe("a dog", max_length=8)
    with pytest.raises(UserError, match=r"unknown option 'truncate'; did you mean 'truncation'"):
        pipe("a dog", truncate=True)
    images = pipeline("image-classification", model=vit_folder(tmp_path / "vit"))
    file = picture(tmp_path / "a.png")
    assert images(file, **usual) == images(file)
    with pytest.raises(UserError, match="batch_size = 0"):
        images(file, batch_size=0)


def test_a_model_without_labels_is_refused(tokenizers, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="labels need head"):
        Classifier.load(bert_folder(tmp_path / "model", tokenizers))
    with pytest.raises(UserError, match="labels the words"):
        Classifier.load(bert_folder(tmp_path / "t", tokenizers, head="tag", labels=("O", "B"))).classify(["a"])


def test_vectors_of_a_bert(tokenizers, tmp_path: Path) -> None:
    embedder = Embedder.load(bert_folder(tmp_path / "model", tokenizers, head="pool"))
    states = [vectors for _, vectors in embedder.embed_tokens(TEXTS)]
    for text, (pieces, vectors) in zip(TEXTS, embedder.embed_tokens(TEXTS), strict=True):
        assert len(pieces) == len(vectors) == len(tokenizers.source.encode(text)) + 2
    assert torch.allclose(embedder.embed(TEXTS), torch.stack([one.mean(dim=0) for one in states]), atol=1e-6)
    assert torch.allclose(embedder.embed(TEXTS, pool="class"), torch.stack([one[0] for one in states]), atol=1e-6)
    pooled = torch.stack([embedder.model.head(one[None])[0] for one in states])
    assert torch.allclose(embedder.embed(TEXTS, pool="pooler"), pooled, atol=1e-6)


def test_vectors_of_an_image(tmp_path: Path) -> None:
    embedder = Embedder.load(vit_folder(tmp_path / "vit"))
    files = [picture(tmp_path / f"{n}.png", seed=n) for n in range(2)]
    states = embedder.model.hidden_states(image_tensor(embedder.model, files))
    assert torch.allclose(embedder.embed(files, pool="class"), states[:, 0])
    assert torch.allclose(embedder.embed(files), states.mean(dim=1))
    with pytest.raises(UserError, match="no pooler"):
        embedder.embed(files, pool="pooler")


def test_vectors_of_an_encoder_decoder(tokenizers, tmp_path: Path) -> None:
    size = tokenizers.source.vocab_size
    config = Seq2SeqConfig(size, size, d_model=16, n_layers=1, n_heads=2, d_ff=20)
    model = fill(Seq2Seq(config), dtype=torch.float32)
    embedder = Embedder.load(save_model(tmp_path / "model", model, tokenizers))
    source, mask = pad_sources([tokenizers.source.encode("a dog runs")], special_ids=SPECIAL_IDS)
    wanted = model.encode(source, mask).states[-1].mean(dim=1)
    assert torch.allclose(embedder.embed(["a dog runs"]), wanted, atol=1e-6)
    with pytest.raises(UserError, match="no class token"):
        embedder.embed(["a"], pool="class")


@pytest.mark.parametrize("end_id", [2, 3])
def test_vectors_of_a_gpt_are_of_what_it_reads_before_it_goes_on(end_id: int, tokenizers, tmp_path: Path) -> None:
    """With its start mark, unless that is the end of another text, as in GPT-2."""
    config = GptConfig(tokenizers.source.vocab_size, **SIZES, special_ids=SpecialIds(bos_id=2, eos_id=end_id))
    model = fill(Gpt(config), dtype=torch.float32)
    folder = save_model(tmp_path / "model", model, tokenizers)
    texts = ["a dog runs", ""]
    found = Embedder.load(folder).embed(texts)
    generator = Generator(model, tokenizers.source)
    for text, vector in zip(texts, found, strict=True):
        wanted = model.hidden_states(torch.tensor([generator.prompt_ids(text)])).mean(dim=1)[0]
        assert torch.allclose(vector, wanted, atol=1e-6)
