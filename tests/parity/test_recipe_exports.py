"""Models of the built-in recipes and the built-in model are exported to Hugging Face, or refused with a reason."""

from pathlib import Path

import pytest
import torch

from deterministic import fill
from heedful.decoding.translator import Translator
from heedful.errors import UserError
from heedful.interop import export_huggingface
from heedful.models.model_info import builtin_model
from heedful.models.model_io import FAMILIES, save_model
from heedful.training import read_settings
from heedful.training import settings as training_settings

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")

RECIPES = sorted(path.stem for path in (Path(training_settings.__file__).parent / "recipes").glob("*.toml"))
# Their class, or the reason why there is none.
GOES = {
    "bart": "BartForConditionalGeneration",
    "base": "MarianMTModel",
    "bert": "BertForMaskedLM",
    "bert-classify": "BertForSequenceClassification",
    "bert-tag": "BertForTokenClassification",
    "big": "MarianMTModel",
    "demo": "PegasusForConditionalGeneration",
    "gpt": "LlamaForCausalLM",
    "small": "PegasusForConditionalGeneration",
    "t5": "T5ForConditionalGeneration",
    "tiny": "PegasusForConditionalGeneration",
    "universal": "no model like the family 'universal'",
    "vit": "ViTForImageClassification",
    "vit-patches": "ViTForMaskedImageModeling",
}
SMALL = ("d_model=16", "n_heads=2", "d_ff=12", "n_layers=1", "n_steps=1", "d_head=8")
TWO = {"source_vocab_size": 60, "target_vocab_size": 60}
FROM_DATA = {"seq2seq": TWO, "universal": TWO, "vit": {"image_size": 32, "labels": ("cat", "dog")}}
# What the tasks of the recipes of BERT and ViT ask for.
TASKS = {"bert-classify": {"head": "classify"}, "bert-tag": {"head": "tag"}}
HEADS = {"vit-patches": {"head": "masked_patches", "labels": ()}}


def folder_of(recipe: str, place: Path) -> Path:
    """A model with the parts that a recipe names, and small sizes."""
    named = read_settings(recipe).model
    settings = read_settings(recipe, [f"model.{size}" for size in SMALL if size.partition("=")[0] in named])
    from_data = {**FROM_DATA.get(settings.family, {"vocab_size": 60}), **TASKS.get(recipe, {}), **HEADS.get(recipe, {})}
    if recipe in TASKS:
        from_data["labels"] = ("good", "bad")
    config = settings.model_config(**from_data)
    return save_model(place / "model", fill(FAMILIES[settings.family][1](config), dtype=torch.float32), None)


@pytest.mark.filterwarnings("ignore:.*no tokenizer")
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_model_of_each_recipe_is_exported_or_refused_with_the_reason(recipe: str, tmp_path: Path) -> None:
    folder, wanted = folder_of(recipe, tmp_path), GOES[recipe]
    if " " in wanted:
        with pytest.raises(UserError, match=wanted):
            export_huggingface(folder, tmp_path / "theirs")
        return
    exported = export_huggingface(folder, tmp_path / "theirs")
    _, info = getattr(transformers, wanted).from_pretrained(exported, output_loading_info=True)
    assert transformers.AutoConfig.from_pretrained(exported).architectures == [wanted]
    assert not any(info[name] for name in ("missing_keys", "unexpected_keys", "mismatched_keys"))


def test_the_built_in_model_is_exported(tmp_path: Path) -> None:
    texts = ["Where is the station?", "I don't know.", "She has two brothers and a dog."]
    exported = export_huggingface(builtin_model(), tmp_path / "theirs")
    tokenizer = transformers.AutoTokenizer.from_pretrained(exported)
    theirs = transformers.AutoModelForSeq2SeqLM.from_pretrained(exported).eval()
    given = tokenizer(texts, return_tensors="pt", padding=True)
    said = theirs.generate(**given, num_beams=1, max_new_tokens=40)
    found = Translator.load(builtin_model(), engine="torch").translate(texts, beam=1)
    assert tokenizer.batch_decode(said, skip_special_tokens=True) == found
