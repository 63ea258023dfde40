"""Folders of T5 and BART with tokenizers in their public formats give the texts of `transformers`."""

import io
import json
from pathlib import Path

import pytest
import sentencepiece

from encoder_decoders import shuffled
from heedful import pipeline
from heedful.cli.main import run
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.insight.look import look
from heedful.interop import export_huggingface, import_huggingface
from heedful.models.model_io import load_model, weights_of
from heedful.training import Files
from heedful.training.resolve_settings import resolve_settings
from trace_checks import check_trace

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")

LINES = [
    "a dog runs over the street and sleeps",
    "two men sit on a bench, and nobody knows why",
    "the animal was too tired to cross it",
    "Who goes there? Nobody!",
    "summarize: a long story",
]
TEXTS = [*LINES, "the  dog", "Zebra ☂ umbrella", "a"]


def t5_folder(folder: Path) -> Path:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES * 20), model_writer=model, vocab_size=40, minloglevel=2,
        model_type="unigram", pad_id=0, eos_id=1, unk_id=2, bos_id=-1, hard_vocab_limit=False,
    )  # fmt: skip
    folder.mkdir()
    (folder / "spiece.model").write_bytes(model.getvalue())
    tokenizer = transformers.T5Tokenizer.from_pretrained(folder)
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=16, d_kv=6, d_ff=24, num_layers=2, num_heads=4, decoder_start_token_id=0
    )
    shuffled(transformers.T5ForConditionalGeneration(config), seed=3).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def bart_folder(folder: Path, n_without_row: int = 0) -> Path:
    from tokenizers import ByteLevelBPETokenizer

    trained = ByteLevelBPETokenizer()
    special_ids = ["<s>", "<pad>", "</s>", "<unk>"]
    trained.train_from_iterator(LINES, vocab_size=299, special_tokens=special_ids, show_progress=False)
    trained.add_special_tokens(["<mask>"])  # the last, as in the public ones
    folder.mkdir()
    trained.save_model(str(folder))
    tokenizer = transformers.BartTokenizer.from_pretrained(folder)
    sizes = {f"{side}_{name}": n for side in ("encoder", "decoder") for name, n in (("layers", 2), ("ffn_dim", 24))}
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    config = transformers.BartConfig(
        vocab_size=len(tokenizer) - n_without_row, d_model=16, **sizes, **heads, max_position_embeddings=80
    )
    model = shuffled(transformers.BartForConditionalGeneration(config), seed=3)
    model.generation_config.forced_bos_token_id = 0
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


FOLDERS = {"t5": t5_folder, "bart": bart_folder}
CLASSES = {"t5": "T5ForConditionalGeneration", "bart": "BartForConditionalGeneration"}


@pytest.fixture(scope="module", params=FOLDERS)
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path, Path]:
    """Return the model type, Hugging Face's folder and the converted one."""
    place = tmp_path_factory.mktemp(request.param)
    theirs = FOLDERS[request.param](place / "theirs")
    return request.param, theirs, import_huggingface(theirs, place / "ours")


def said_there(kind: str, folder: Path, texts: list[str], beam: int) -> list[str]:
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    model = getattr(transformers, CLASSES[kind]).from_pretrained(folder).eval()
    given = tokenizer(texts, return_tensors="pt", padding=True)
    n_tokens = 14 + (kind == "bart")  # the forced mark is one of them
    written = model.generate(
        given["input_ids"],
        attention_mask=given["attention_mask"],
        num_beams=beam,
        do_sample=False,
        max_new_tokens=n_tokens,
        forced_eos_token_id=None,
    )
    return tokenizer.batch_decode(written, skip_special_tokens=True, clean_up_tokenization_spaces=False)


@pytest.mark.parametrize("beam", [1, 4])
def test_texts_equal_those_of_transformers(pair: tuple[str, Path, Path], beam: int) -> None:
    kind, theirs, ours = pair
    translator = Translator.load(ours)
    found = translator.translate(TEXTS, beam=beam, max_len=14, stop="estimated")
    assert [text.strip() for text in found] == [text.strip() for text in said_there(kind, theirs, TEXTS, beam)]
    assert len(set(found)) > 2


def test_the_export_has_the_tokenizer(pair: tuple[str, Path, Path], tmp_path: Path) -> None:
    _, theirs, ours = pair
    exported = export_huggingface(ours, tmp_path / "exported")
    first, again = (transformers.AutoTokenizer.from_pretrained(folder) for folder in (theirs, exported))
    for text in TEXTS:
        assert again(text, add_special_tokens=False)["input_ids"] == first(text, add_special_tokens=False)["input_ids"]
    before, after = load_model(ours), load_model(import_huggingface(exported, tmp_path / "again"))
    assert after.model.config == before.model.config
    assert all((weights_of(after.model)[name] == tensor).all() for name, tensor in weights_of(before.model).items())
    assert after.tokenizers.source.fingerprint == before.tokenizers.source.fingerprint


def test_commands_take_the_converted_model(
    pair: tuple[str, Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, _, ours = pair
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in LINES))
    options = ["-m", str(ours), "--set", "max_len=9"]
    for command in ("translate", "summarize"):
        assert run([command, str(tmp_path / "in"), "--output", str(tmp_path / command), *options]) == 0
        assert len((tmp_path / command).read_text().splitlines()) == len(LINES)
    files = ["--source", str(tmp_path / "in"), "--target", str(tmp_path / "in")]
    capsys.readouterr()
    assert run(["evaluate", "-m", str(ours), *files, "--beam", "1", "--json"]) == 0
    (system,) = json.loads(capsys.readouterr().out)["systems"]
    assert system["perplexity"] > 1


def test_look_shows_the_generated_text(pair: tuple[str, Path, Path], tmp_path: Path) -> None:
    """With the model's own special ids and tokenizer."""
    _, _, folder = pair
    seen = look(folder, TEXTS[0], beam=2)
    check_trace(json.loads(seen.to_json()))
    assert seen.translation.text == Translator.load(folder, engine="torch").translate(TEXTS[0], beam=2)
    assert seen.source.words[-1] == (len(seen.source.ids) - 1, len(seen.source.ids))  # the end mark is a word
    assert len(seen.source.words) < len(seen.source.ids)
    assert run(["look", TEXTS[0], "-m", str(folder), "--output", str(tmp_path / "page.html")]) == 0


TOLD = {"summarization": "summarize: ", "translation_en_to_de": "translate English to German: "}


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A T5 like the public ones of version 1.0, whose config.json has a prefix for each task."""
    place = tmp_path_factory.mktemp("told")
    folder = t5_folder(place / "theirs")
    values = json.loads((folder / "config.json").read_text())
    values["task_specific_params"] = {
        name: {"num_beams": 4, "early_stopping": True, "prefix": prefix} for name, prefix in TOLD.items()
    }
    (folder / "config.json").write_text(json.dumps(values))
    return import_huggingface(folder, place / "ours")


@pytest.mark.parametrize("task", TOLD)
def test_a_converted_t5_gets_the_prefix_of_its_task(task: str, told: Path) -> None:
    text = "a dog runs over the street"
    wanted = Translator.load(told, prefix=TOLD[task]).translate(text)
    assert wanted != Translator.load(told).translate(text)
    assert list(pipeline(task, model=told)(text)[0].values()) == [wanted]
    assert list(pipeline(task, model=told, prefix="")(text)[0].values()) == [Translator.load(told).translate(text)]


def test_summarize_passes_the_prefix(told: Path, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("a dog runs over the street\n")
    said = []
    for prefix in ([], ["--prefix", "summarize: "], ["--prefix", ""]):
        out = ["--output", str(tmp_path / "out.txt")]
        assert run(["summarize", str(tmp_path / "in.txt"), "-m", str(told), *prefix, *out]) == 0
        said.append((tmp_path / "out.txt").read_text())
    assert said[0] == said[1] != said[2]


def test_an_unknown_task_is_named(told: Path) -> None:
    with pytest.warns(UserWarning, match=r"only for summarization, translation_en_to_de; pass prefix="):
        pipeline("translation", model=told)


def test_prefixes_go_there_and_back(told: Path, tmp_path: Path) -> None:
    exported = export_huggingface(told, tmp_path / "theirs")
    values = json.loads((exported / "config.json").read_text())
    assert values["task_specific_params"] == {name: {"prefix": prefix} for name, prefix in TOLD.items()}
    assert load_model(import_huggingface(exported, tmp_path / "again")).model.config.prefixes == TOLD
    (tmp_path / "pairs.tsv").write_text("a\tb\n")
    settings = resolve_settings(Files.of(tmp_path / "pairs.tsv", (), None, None, told), None, None, []).settings
    assert "prefixes" not in settings.model  # it goes on with texts as they are


def test_a_prefix_that_bart_cannot_keep_gives_a_warning(tmp_path: Path) -> None:
    folder = bart_folder(tmp_path / "theirs")
    values = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**values, "prefix": "news: "}))
    with pytest.warns(UserWarning, match=r"does not keep it for this model: 'news: ' \(any\)\. Pass it as prefix="):
        import_huggingface(folder, tmp_path / "ours")


def test_a_mask_beyond_the_embedding_is_left_out(tmp_path: Path) -> None:
    """bart-large-cnn and distilbart have 50,264 embedding rows, and their tokenizers 50,265 pieces."""
    theirs = bart_folder(tmp_path / "theirs", n_without_row=1)
    with pytest.warns(UserWarning, match=r"279 rows, so these special tokens of the tokenizer are left out: <mask>"):
        ours = import_huggingface(theirs, tmp_path / "ours")
    tokenizer, there = load_model(ours).tokenizers.source, transformers.AutoTokenizer.from_pretrained(theirs)
    assert (tokenizer.vocab_size, tokenizer.special_ids.mask_id, len(there)) == (279, None, 280)
    for text in TEXTS:
        assert tokenizer.encode(text) == there(text, add_special_tokens=False)["input_ids"]
    found = Translator.load(ours).translate(TEXTS, beam=4, max_len=14, stop="estimated")
    assert [text.strip() for text in found] == [text.strip() for text in said_there("bart", theirs, TEXTS, 4)]


def test_a_piece_beyond_the_embedding_is_refused(tmp_path: Path) -> None:
    theirs = bart_folder(tmp_path / "theirs", n_without_row=2)
    with pytest.raises(UserError, match=r"theirs: the tokenizer's piece .* has the id 278, .* 'vocab_size' 278"):
        import_huggingface(theirs, tmp_path / "ours")
    assert not (tmp_path / "ours").exists()
