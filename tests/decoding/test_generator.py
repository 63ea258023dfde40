"""Continuations of prompts: greedy, sampled, by beam search, in batches and streamed."""

from pathlib import Path

import pytest
import torch

import heedful
from deterministic import fill, whole_numbers
from echo_engine import tokenizers
from heedful.decoding.generator import ContinuationDecoder, Generator
from heedful.errors import UserError
from heedful.models.gpt import Gpt, GptConfig
from heedful.models.model_io import save_model
from heedful.text.special_ids import SpecialIds

SIZES = {"d_model": 16, "n_layers": 2, "n_heads": 2, "d_ff": 24, "max_len": 64}
PROMPTS = ["A dog", "", "Two cats sit on a bench.", "x", "naïve 你好", "The end"]


def make(**changes) -> Gpt:
    size = tokenizers().source.vocab_size
    return fill(Gpt(GptConfig(vocab_size=size, **{**SIZES, **changes})), dtype=torch.float32)


@pytest.fixture(scope="module")
def generator() -> Generator:
    return Generator(make(), tokenizers().source)


@torch.inference_mode()
def greedy_by_hand(model: Gpt, ids: list[int], n: int) -> list[int]:
    """Return at most n tokens of a greedy search, with one forward pass for each token."""
    new_ids: list[int] = []
    while len(new_ids) < n:
        token = int(model(torch.tensor([[*ids, *new_ids]]))[0, -1].argmax())
        if token == model.config.special_ids.eos_id:
            break
        new_ids.append(token)
    return new_ids


def test_greedy_search_takes_the_most_probable_tokens(generator: Generator) -> None:
    for prompt in PROMPTS:
        ids = generator.prompt_ids(prompt)
        assert ids[0] == 2
        expected = greedy_by_hand(generator.model, ids, 20)
        [[found]] = generator.search_ids([ids], max_len=20)
        assert found.ids == expected
        assert found.complete == (len(expected) < 20)


def test_the_other_prompts_of_a_call_change_nothing(generator: Generator) -> None:
    alone = [generator.generate(prompt, max_len=15) for prompt in PROMPTS]
    assert generator.generate(PROMPTS, max_len=15) == alone
    assert generator.generate(iter(PROMPTS * 8), max_len=15) == alone * 8
    assert generator.generate([]) == []
    assert generator.search("x", max_len=15)[0].text == alone[3]


def test_many_prompts_leave_and_enter_a_batch(generator: Generator) -> None:
    """There are more prompts than rows, of different lengths: finished rows are reused while others continue."""
    prompts = [whole_numbers(1 + n % 13, below=60, first=4, name=f"p{n}").tolist() for n in range(90)]
    few = Generator(generator.model, None, batch_rows=7)
    for options in ({}, {"beam": 3, "n_best": 2}, {"sampling": {"seed": 5}, "n_best": 2}):
        found = few.search_ids(prompts, max_len=9, **options)
        if "sampling" in options:  # a sample depends on the index of its prompt in the call
            again = Generator(generator.model, None, batch_rows=400).search_ids(prompts, max_len=9, **options)
            assert [[one.ids for one in best] for best in found] == [[one.ids for one in best] for best in again]
            continue
        for prompt, best in list(zip(prompts, found, strict=True))[::9]:
            [again] = generator.search_ids([prompt], max_len=9, **options)
            assert [one.ids for one in best] == [one.ids for one in again]
            assert [one.score for one in best] == pytest.approx([one.score for one in again], abs=1e-4)


@torch.inference_mode()
def test_scores_are_the_models_own(generator: Generator) -> None:
    for options in ({}, {"beam": 4, "n_best": 3}, {"sampling": {"temperature": 0.7, "top_k": 9}}):
        ids = generator.prompt_ids("A dog")
        for one in generator.search_ids([ids], max_len=12, **options)[0]:
            new_ids = [*one.ids, *([3] if one.complete else [])]
            log_probs = generator.model(torch.tensor([[*ids, *new_ids]]))[0].log_softmax(dim=-1)
            expected = sum(float(log_probs[len(ids) - 1 + i, token]) for i, token in enumerate(new_ids))
            assert one.score == pytest.approx(expected, abs=1e-4)


def test_a_wider_beam_finds_texts_of_at_least_the_same_probability(generator: Generator) -> None:
    prompts = [generator.prompt_ids(prompt) for prompt in PROMPTS]
    one = generator.search_ids(prompts, max_len=8, min_len=8)
    many = generator.search_ids(prompts, max_len=8, min_len=8, beam=30)
    # The same text may have another last digit in another batch; another text must be the likelier one.
    assert all(b[0].ids == a[0].ids or b[0].score > a[0].score for a, b in zip(one, many, strict=True))
    assert any(b[0].score > a[0].score + 1e-3 for a, b in zip(one, many, strict=True))


def test_a_seed_reproduces_its_texts_and_another_does_not(generator: Generator) -> None:
    how = {"max_len": 20, "n_best": 3}
    first = generator.search("A dog", sampling={"seed": 1}, **how)
    assert first == generator.search("A dog", sampling={"seed": 1}, **how)
    assert first != generator.search("A dog", sampling={"seed": 2}, **how)
    assert len({one.text for one in first}) == 3
    among = generator.search(["A dog", "x"], sampling={"seed": 1}, **how)[0]
    assert [one.text for one in among] == [one.text for one in first]


@pytest.mark.parametrize("options", [{}, {"sampling": {"seed": 3}}, {"beam": 3}, {"max_len": 1}])
def test_a_streamed_text_equals_the_whole_text(generator: Generator, options: dict[str, object]) -> None:
    for prompt in PROMPTS:
        pieces = list(generator.stream(prompt, **{"max_len": 25, **options}))
        assert "".join(pieces) == generator.generate(prompt, **{"max_len": 25, **options})
        assert all(pieces)
    if options == {"sampling": {"seed": 3}}:
        assert len(pieces) > 5


def test_a_stream_leaves_inference_mode_between_pieces(generator: Generator) -> None:
    stream = generator.stream("A dog", max_len=9)
    next(stream)
    assert not torch.is_inference_mode_enabled()
    stream.close()
    assert not torch.is_inference_mode_enabled()


def test_a_stream_contains_complete_characters_only() -> None:
    tokenizer = tokenizers().source
    before = tokenizer.encode("é is")
    after = tokenizer.encode("é is 你好 naïve")[len(before) :]
    assert len(after) > len(" 你好 naïve")  # several bytes to a character
    continuation = ContinuationDecoder(tokenizer, before)
    pieces = [continuation.add([id]) for id in after]
    assert "".join(pieces) == " 你好 naïve"
    assert "" in pieces
    assert not any("\ufffd" in piece for piece in pieces)


def test_no_repeat_ngram_includes_the_prompt(generator: Generator) -> None:
    """With no_repeat_ngram = 1, no token of the prompt is generated."""
    ids = generator.prompt_ids("abcdefghij")
    [[found]] = generator.search_ids([ids], max_len=40, no_repeat_ngram=1)
    assert not set(found.ids) & set(ids)
    assert len(set(found.ids)) == len(found.ids)


def test_a_model_with_equal_bos_and_eos_reads_a_prompt_without_bos() -> None:
    generator = Generator(make(special_ids=SpecialIds(bos_id=3, eos_id=3)), tokenizers().source)
    assert generator.prompt_ids("ab") == tokenizers().source.encode("ab")
    assert generator.prompt_ids("") == [3]


def test_a_text_may_be_longer_than_the_window() -> None:
    generator = Generator(make(max_len=8), tokenizers().source)
    [[found]] = generator.search_ids([[2, 5]], max_len=50, min_len=50)
    assert len(found.ids) == 50
    with pytest.warns(UserWarning, match="the prompt has 28 tokens, but the model reads at most 8 at once"):
        assert generator.generate("abcdefghijklmnopqrstuvwxyz", max_len=3)


def test_from_a_folder(generator: Generator, tmp_path: Path) -> None:
    folder = save_model(tmp_path / "run" / "best", generator.model, tokenizers())
    assert Generator.load(tmp_path / "run").generate("A dog") == generator.generate("A dog")
    assert Generator.load(folder).generate("A dog") == generator.generate("A dog")
    save_model(tmp_path / "ids", generator.model, None)
    without = Generator.load(tmp_path / "ids")
    assert without.search_ids([[2, 8, 9]]) == generator.search_ids([[2, 8, 9]])
    with pytest.raises(UserError, match="has no tokenizer"):
        without.generate("A dog")


def test_invalid_options_and_prompts_are_rejected(generator: Generator) -> None:
    with pytest.raises(UserError, match="did you mean 'max_len'"):
        generator.generate("x", max_length=3)
    with pytest.raises(UserError, match=r"cannot use one.*leave it out"):
        generator.generate("x", shortlist=True)
    with pytest.raises(UserError, match="prompt 1: must be ids from 0 to"):
        generator.search_ids([[1], []])
    with pytest.raises(UserError, match="prompt 0: must be ids"):
        generator.search_ids([[10**6]])
    with pytest.raises(UserError, match="half of a surrogate pair"):
        generator.generate("a\ud800")
    with pytest.raises(UserError, match="text 2: expected a str"):
        generator.generate(["a", 3])


class TestPipeline:
    def test_shapes_are_those_of_version_4(self, generator: Generator) -> None:
        pipe = heedful.pipeline("text-generation", model=generator)
        text = generator.generate("A dog", max_len=7)
        assert pipe("A dog", max_new_tokens=7) == [{"generated_text": "A dog" + text}]
        assert pipe("A dog", max_new_tokens=7, return_full_text=False) == [{"generated_text": text}]
        assert pipe(["A dog"], max_new_tokens=7) == [[{"generated_text": "A dog" + text}]]
        several = pipe(["A dog", "x"], do_sample=True, num_return_sequences=3, max_new_tokens=7, seed=4)
        assert [len(one) for one in several] == [3, 3]
        how = {"max_len": 7, "n_best": 3, "sampling": {"top_k": 50, "seed": 4}}
        assert [one["generated_text"] for one in several[0]] == [
            one.prompt + one.text for one in generator.search(["A dog", "x"], **how)[0]
        ]

    def test_max_length_counts_the_prompt(self, generator: Generator) -> None:
        pipe = heedful.pipeline("text-generation", model=generator)
        n_prompt = len(generator.prompt_ids("A dog"))
        expected = [{"generated_text": "A dog" + generator.generate("A dog", max_len=4)}]
        assert pipe("A dog", max_length=n_prompt + 4) == expected
        with pytest.raises(UserError, match="leaves no room"):
            pipe("A dog", max_length=n_prompt)

    def test_a_model_by_its_folder(self, generator: Generator, tmp_path: Path) -> None:
        folder = save_model(tmp_path / "model", generator.model, tokenizers())
        assert heedful.pipeline("text-generation", model=folder)("x", max_new_tokens=3)
        with pytest.raises(UserError, match=r"family 'gpt'.*heedful generate"):
            heedful.pipeline("translation", model=folder)
        assert heedful.pipeline("text-generation", model=folder, compute="int8")("x", max_new_tokens=3)
        with pytest.raises(UserError, match="only the CTranslate2 engine has it"):
            heedful.pipeline("text-generation", model=folder, engine="torch", compute="int8")

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"max_new_token": 3}, "did you mean 'max_new_tokens'"),
            ({"num_beams": 2, "do_sample": True}, "pass one of them"),
            ({"max_new_tokens": 0}, "'max_len'"),
        ],
    )
    def test_mistakes(self, generator: Generator, options: dict[str, object], words: str) -> None:
        with pytest.raises(UserError, match=words):
            heedful.pipeline("text-generation", model=generator)("x", **options)

    def test_sampling_options_without_do_sample_give_a_warning(self, generator: Generator) -> None:
        pipe = heedful.pipeline("text-generation", model=generator)
        with pytest.warns(UserWarning, match="temperature.*do_sample"):
            assert pipe("x", temperature=0.5, max_new_tokens=3) == pipe("x", max_new_tokens=3)
