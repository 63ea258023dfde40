"""Labels of texts, pairs, words and images have the probabilities of the model."""

from pathlib import Path

import pytest
import torch

from encoder_models import bert_folder, own_tokenizers, picture, vit_folder
from heedful import UserError, load_model, pipeline
from heedful.data import IGNORE_INDEX, Sentence
from heedful.decoding.classifier import Classifier
from heedful.decoding.encoder_inputs import image_tensor
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


def test_labels_are_sorted_by_their_softmax_probabilities(mood: Path) -> None:
    results = Classifier.load(mood).classify(TEXTS)
    for text, labels in zip(TEXTS, results, strict=True):
        probabilities = logits_of(mood, text).softmax(dim=-1)
        expected = dict(zip(LABELS["labels"], probabilities.tolist(), strict=True))
        assert {result.label: pytest.approx(result.score, abs=1e-6) for result in labels} == expected
        assert [result.score for result in labels] == sorted((result.score for result in labels), reverse=True)


def test_a_multi_label_model_uses_the_sigmoid(tokenizers, tmp_path: Path) -> None:
    folder = bert_folder(tmp_path / "model", tokenizers, **{**LABELS, "multi_label": True})
    [labels] = Classifier.load(folder).classify(["a dog"])
    expected = logits_of(folder, "a dog").sigmoid().tolist()
    assert {result.label: pytest.approx(result.score, abs=1e-6) for result in labels} == dict(
        zip(LABELS["labels"], expected, strict=True)
    )


def test_a_word_has_the_label_of_its_first_token(tokenizers, tmp_path: Path) -> None:
    labels = ("O", "B", "I")
    folder = bert_folder(tmp_path / "model", tokenizers, head="tag", labels=labels)
    texts = [*TEXTS, "The noun1  runs\tunbelievably", "\u200b dog"]
    results = Classifier.load(folder).label_words(texts)
    model, tokenizer = load_model(folder).model, tokenizers.source
    for text, words in zip(texts, results, strict=True):
        sentence = Sentence(tuple(text.split()), tuple("B" for _ in text.split()))
        ids, label_ids = encode(sentence, tokenizer, labels, 38)  # as training does
        row = torch.tensor([[model.config.special_ids.start_id, *ids, model.config.special_ids.eos_id]])
        probabilities = model(row)[0, 1:-1].softmax(dim=-1)[torch.from_numpy(label_ids != IGNORE_INDEX)]
        expected = [labels[label_id] for label_id in probabilities.argmax(dim=-1).tolist()]
        assert [(result.word, result.label) for result in words] == list(zip(sentence.words, expected, strict=True))
        assert [result.score for result in words] == pytest.approx(probabilities.max(dim=-1).values.tolist(), abs=1e-6)


def test_words_that_are_cut_off_have_no_label_and_a_warning(tokenizers, tmp_path: Path) -> None:
    classifier = Classifier.load(bert_folder(tmp_path / "m", tokenizers, head="tag", labels=("O", "B")))
    [words] = classifier.label_words(["a " * 100])
    assert [word.position for word in words] == list(range(1, 39))
    assert classifier.truncation.warnings() == ["1 line was cut to the 40 tokens that the model takes"]


def test_long_texts_are_cut_and_counted(mood: Path) -> None:
    classifier = Classifier.load(mood)
    classifier.classify(["a dog runs", "a dog " * 100])
    assert classifier.truncation.warnings() == ["1 line was cut to the 40 tokens that the model takes"]


def test_an_image_is_classified(tmp_path: Path) -> None:
    folder = vit_folder(tmp_path / "vit")
    files = [picture(tmp_path / f"{n}.png", seed=n) for n in range(3)]
    classifier = Classifier.load(folder)
    expected = classifier.model(image_tensor(classifier.model, files)).softmax(dim=-1)
    for labels, probabilities in zip(classifier.classify(files), expected, strict=True):
        assert {result.label: pytest.approx(result.score, abs=1e-6) for result in labels} == dict(
            zip(("cat", "dog", "bird"), probabilities.tolist(), strict=True)
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
    probabilities = loaded.model(torch.tensor([ids]), segments=torch.tensor([segments]))[0].softmax(dim=-1).tolist()
    pipe = pipeline("text-classification", model=mood)
    found = {one["label"]: pytest.approx(one["score"], abs=1e-6) for one in pipe(PAIR, top_k=None)}
    assert found == dict(zip(LABELS["labels"], probabilities, strict=True))
    [one], [alone], [same] = pipe([PAIR, "a cat", {"text": "a cat"}], top_k=1)  # in one batch, padded
    assert [one, pipe([PAIR])[0], pipe(PAIR)] == [pytest.approx(pipe(PAIR, top_k=1)[0], abs=1e-6)] * 3
    assert [alone, same] == [pytest.approx(pipe("a cat")[0], abs=1e-6)] * 2


@pytest.mark.parametrize("bad", [5, None, ["a", "b"], {"text": 5}, {"text": "a", "pair": "b"}, {"text_pair": "b"}])
def test_inputs_that_are_no_texts_are_rejected(bad: object, mood: Path) -> None:
    pipe = pipeline("text-classification", model=mood)
    with pytest.raises(UserError, match="takes texts, and pairs"):
        pipe([bad])
    if not isinstance(bad, list):
        with pytest.raises(UserError, match="takes texts, and pairs"):
            pipe(bad)


def test_a_pillow_image_has_the_labels_of_its_file(tmp_path: Path) -> None:
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


def test_the_pipelines_accept_options_without_effect(mood: Path, tmp_path: Path) -> None:
    usual = {"truncation": True, "padding": True, "batch_size": 2}
    pipe = pipeline("text-classification", model=mood)
    assert pipe("a dog", **usual, max_length=512) == pipe("a dog")
    assert pipe("a dog " * 60, **usual) == pipe("a dog " * 60)
    with pytest.raises(UserError, match="max_length = 8: texts are always cut to the 40 tokens"):
        pipe("a dog", max_length=8)
    with pytest.raises(UserError, match=r"unknown option 'truncate'; did you mean 'truncation'"):
        pipe("a dog", truncate=True)
    images = pipeline("image-classification", model=vit_folder(tmp_path / "vit"))
    file = picture(tmp_path / "a.png")
    assert images(file, **usual) == images(file)
    with pytest.raises(UserError, match="batch_size = 0"):
        images(file, batch_size=0)


def test_a_model_without_a_fitting_head_is_rejected(tokenizers, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="labels need head"):
        Classifier.load(bert_folder(tmp_path / "model", tokenizers))
    with pytest.raises(UserError, match="labels the words"):
        Classifier.load(bert_folder(tmp_path / "t", tokenizers, head="tag", labels=("O", "B"))).classify(["a"])
