"""A converted folder with its tokenizer continues a prompt like Hugging Face's pipeline."""

from pathlib import Path

import pytest
import torch

import heedful
from deterministic import fill
from heedful.decoding.generator import Generator
from heedful.interop import import_huggingface

transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed: heedful[hf]")
tokenizers = pytest.importorskip("tokenizers", reason="needs heedful[hf]")

TEXT = ["A dog runs.", "Two cats sit on a bench, naïve 你好 café.", "the animal didn't cross the street"] * 3
PROMPTS = ["A dog", "naïve 你", " x", "heedful", "\n\n", "a  b", "the animal"]
SIZES = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 32, "max_position_embeddings": 64}


def gpt2(folder: Path) -> Path:
    """Byte-level BPE with one special token between texts, as GPT-2 has it."""
    learned = tokenizers.ByteLevelBPETokenizer()
    learned.train_from_iterator(TEXT, vocab_size=320, special_tokens=["<|endoftext|>"])
    folder.mkdir()
    learned.save_model(str(folder))
    tokenizer = transformers.GPT2TokenizerFast(vocab=str(folder / "vocab.json"), merges=str(folder / "merges.txt"))
    config = transformers.GPT2Config(vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=0, **SIZES)
    return saved(transformers.GPT2LMHeadModel(config), tokenizer, folder / "model")


def llama(folder: Path) -> Path:
    """BPE with byte fallback, BOS before each text, and more embedding rows than pieces."""
    learned = tokenizers.Tokenizer(tokenizers.models.BPE(byte_fallback=True, unk_token="<unk>"))
    learned.normalizer = tokenizers.normalizers.Sequence(
        [tokenizers.normalizers.Prepend("▁"), tokenizers.normalizers.Replace(" ", "▁")]
    )
    learned.decoder = tokenizers.decoders.Sequence(
        [
            tokenizers.decoders.Replace("▁", " "),
            tokenizers.decoders.ByteFallback(),
            tokenizers.decoders.Fuse(),
            tokenizers.decoders.Strip(" ", 1, 0),
        ]
    )
    special = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    learned.train_from_iterator(TEXT, tokenizers.trainers.BpeTrainer(vocab_size=330, special_tokens=special))
    learned.post_processor = tokenizers.processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    marks = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=learned, **marks)
    config = transformers.LlamaConfig(vocab_size=len(tokenizer) + 6, intermediate_size=48, **SIZES)
    return saved(transformers.LlamaForCausalLM(config), tokenizer, folder / "model")


def chat(folder: Path) -> Path:
    """A Llama whose BOS is not its EOS, and whose tokenizer adds neither to a text, like SmolLM2-Instruct."""
    return byte_level_llama(folder, start="<|im_start|>", end="<|im_end|>", template=None)


def one_mark(folder: Path) -> Path:
    """A Llama whose BOS is its EOS, and whose tokenizer still adds it before each text."""
    return byte_level_llama(folder, start="<|end|>", end="<|end|>", template="<|end|> $A")


def byte_level_llama(folder: Path, *, start: str, end: str, template: str | None) -> Path:
    learned = tokenizers.Tokenizer(tokenizers.models.BPE())
    learned.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    learned.decoder = tokenizers.decoders.ByteLevel()
    special, alphabet = list(dict.fromkeys((start, end))), tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=320, special_tokens=special, initial_alphabet=alphabet)
    learned.train_from_iterator(TEXT, trainer)
    ids = {"bos_token_id": special.index(start), "eos_token_id": special.index(end)}
    if template is not None:
        marks = [(start, ids["bos_token_id"])]
        learned.post_processor = tokenizers.processors.TemplateProcessing(single=template, special_tokens=marks)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=learned, bos_token=start, eos_token=end)
    config = transformers.LlamaConfig(vocab_size=len(tokenizer), intermediate_size=48, **ids, **SIZES)
    return saved(transformers.LlamaForCausalLM(config), tokenizer, folder / "model")


def saved(model, tokenizer, folder: Path) -> Path:
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    fill(model, dtype=torch.float32)
    for name, buffer in model.named_buffers():
        buffer.copy_(buffers[name])
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize("make", [gpt2, llama, chat, one_mark])
def test_texts_equal_those_of_their_pipeline(make, tmp_path: Path) -> None:
    folder = make(tmp_path / "theirs")
    import_huggingface(folder, tmp_path / "ours")
    theirs = transformers.pipeline("text-generation", model=str(folder))
    generator = Generator.load(tmp_path / "ours")
    ours = heedful.pipeline("text-generation", model=generator)
    for prompt in PROMPTS:
        ids = theirs.tokenizer(prompt).input_ids
        assert generator.prompt_ids(prompt) == ids
        there = theirs(prompt, max_new_tokens=15, do_sample=False, return_full_text=False)
        assert ours(prompt, max_new_tokens=15, return_full_text=False) == there
        assert "".join(generator.stream(prompt, max_len=15)) == there[0]["generated_text"]
    assert generator.prompt_ids("") == [
        generator.model.config.special_ids.bos_id
    ]  # there must be something to go on from
