import re
from dataclasses import replace

import pytest

from heedful.evaluation.metrics import Score, bleu, chrf
from heedful.training.model_card import CardFacts, CorpusFacts, CostFacts, ScoreFacts, SizeFacts, model_card

SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"
FACTS = CardFacts(
    name="runs/en-de",
    heedful="0.1.0",
    sizes=SizeFacts(
        family="seq2seq",
        parameters=9_512_448,
        n_layers=4,
        n_decoder_layers=3,
        source_vocab_size=8000,
        target_vocab_size=8000,
        joint=True,
        tokenizer="unigram",
        max_len=256,
    ),
    settings={
        "model": {"d_model": 256, "dropout": 0.2},
        "optimiser": {"lr": 0.002},
        "run": {"seed": 7},
        "objective": {"kind": "teacher_forcing"},
    },
    trained_on=(CorpusFacts("/home/me/a_corpus.en + /home/me/a_corpus.de", 29_000, "ab" * 32),),
    validated_on=(CorpusFacts("held out of it", 1_014, "cd" * 32),),
    cost=CostFacts(steps=9000, tokens=34_000_000, seconds=11_040.0, machine="2 cores of a <fast> processor"),
    scores=(ScoreFacts("val.en + val.de", 1014, Score("BLEU", 31.237, SIGNATURE), "greedy"),),
    weights="the best of 9 validations",
    languages=("en", "no"),
    usage=("heedful train runs/en-de --resume",),
)


def head_of(card: str) -> str:
    match = re.match(r"---\n(.*?)\n---\n\n", card, re.DOTALL)
    assert match is not None
    return match.group(1)


def test_the_card_says_everything_that_is_known() -> None:
    card = model_card(FACTS)
    for words in (
        "# runs/en-de",
        "9,512,448 parameters",
        "heedful 0.1.0",
        "from `en` to `no`",
        "Its weights are the best of 9 validations.",
        "```console\n$ heedful train runs/en-de --resume\n```",
        f"| training | a\\_corpus.en + a\\_corpus.de | 29,000 | `{'ab' * 32}` |",
        f"| validation | held out of it | 1,014 | `{'cd' * 32}` |",
        f"- BLEU **31.24** on val.en + val.de, 1,014 sentences, greedy: `{SIGNATURE}`",
        "4 in the encoder, 3 in the decoder",
        "8,000 pieces for both sides (`unigram`)",
        "| model width | `256` |",
        "| highest learning rate | `0.002` |",
        "| seed | `7` |",
        "up to 256 tokens",
        "bias",
        "no warranty",
        "9,000 steps, 34,000,000 target tokens, 3 h 04 m",
        "2 cores of a \\<fast\\> processor",
    ):
        assert words in card
    assert card.endswith("\n") and "\n\n\n" not in card and "None" not in card


def test_the_head_is_what_hubs_read() -> None:
    yaml = pytest.importorskip("yaml")
    assert yaml.safe_load(head_of(model_card(FACTS))) == {
        "language": ["en", "no"],  # Norwegian, not false
        "library_name": "heedful",
        "pipeline_tag": "translation",
        "metrics": ["bleu"],
    }


def test_unknown_facts_are_left_out() -> None:
    card = model_card(replace(FACTS, languages=None, scores=(), usage=(), weights="", settings={}))
    head = head_of(card)
    assert "language" not in head and "metrics" not in head and "license" not in card
    assert "How to use it" not in card and "## Settings" not in card and "Its weights are" not in card
    assert "None were measured." in card


def test_only_existing_settings_are_listed() -> None:
    assert "label smoothing" not in model_card(FACTS)
    assert "| label smoothing | `0.0` |" in model_card(replace(FACTS, settings={"loss": {"label_smoothing": 0.0}}))


def test_a_bar_in_a_value_does_not_end_its_cell() -> None:
    assert "| precision | `a\\|b` |" in model_card(replace(FACTS, settings={"run": {"precision": "a|b"}}))


def test_two_vocabularies_are_both_counted() -> None:
    sizes = replace(FACTS.sizes, joint=False, target_vocab_size=9000)
    assert "8,000 source pieces and 9,000 target pieces" in model_card(replace(FACTS, sizes=sizes))


def test_scores_carry_their_signatures() -> None:
    scores = [bleu(["a b c d e"], [["a b c d e"]]), chrf(["a b c d e"], [["a b c d e"]])]
    card = model_card(replace(FACTS, scores=tuple(ScoreFacts("test", 1, score, "greedy") for score in scores)))
    for score in scores:
        assert f"{score.name} **100.00** on test, 1 sentences, greedy: `{score.signature}`" in card
    assert head_of(card).endswith("metrics:\n- bleu\n- chrf")


@pytest.mark.parametrize("name", ["a|b", "a\nb", "# a", "<script>", "`x`", "[a](b)", "*a*_b_", "---"])
def test_no_name_can_break_the_card(name: str) -> None:
    corpus = CorpusFacts(name, 1, "0" * 64)
    card = model_card(replace(FACTS, name=name, trained_on=(corpus,), usage=(name,), weights=name))
    lines = card.splitlines()
    assert len(lines) == len(model_card(FACTS).splitlines())
    rows = [line for line in lines if line.startswith("| training")]
    assert len(rows) == 1 and len(re.findall(r"(?<!\\)\|", rows[0])) == 5
    assert "<script>" not in "\n".join(line for line in lines if not line.startswith("$ "))


def test_no_folder_of_the_machine_is_in_the_card() -> None:
    assert "/home" not in model_card(FACTS)
