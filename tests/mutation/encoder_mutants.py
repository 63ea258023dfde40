"""Bugs to plant in BERT, ViT, images, the tokenizers of Hugging Face checkpoints, and the encoders' decoding."""

from mutant_kind import Mutant

BERT, VIT, IMAGES, PATCHES = (
    ("models/test_bert.py",),
    ("models/test_vit.py",),
    ("data/test_images.py",),
    ("nn/test_embeddings.py",),
)
BERT_THERE, VIT_THERE = ("parity/test_bert_parity.py",), ("parity/test_vit_parity.py",)
INPUTS, ANSWERS, HF_TOKENIZERS = (
    ("decoding/test_encoder_inputs.py",),
    ("decoding/test_classifier.py", "decoding/test_embedder.py"),
    ("interop/test_hf_tokenizers.py",),
)

IN_ENCODERS = [
    Mutant("BERT reads padding", "models/bert.py", "None if mask is None else padding_mask(mask)", "None", BERT),
    Mutant("BERT ignores segments", "models/bert.py", "self.embedding(ids) + segment", "self.embedding(ids)", BERT),
    Mutant(
        "BERT's output layer does not share the embedding",
        "models/bert.py",
        "self.head.share(self.embedding.table)",
        "pass",
        BERT,
    ),
    Mutant(
        "ViT ignores the order of the patches",
        "models/vit.py",
        "            x = reordered(x, order)",
        "            pass",
        VIT,
    ),
    Mutant(
        "ViT's encoder sees masked patches",
        "models/vit.py",
        "            x = self.mask_token(x, masked)",
        "            pass",
        VIT,
    ),
    Mutant(
        "patches are read column by column",
        "nn/embeddings.py",
        "grid.permute(0, 2, 4, 1, 3, 5)",
        "grid.permute(0, 4, 2, 1, 3, 5)",
        PATCHES,
    ),
    Mutant("no image is flipped", "data/images.py", "pixels[..., ::-1], pixels)", "pixels, pixels)", IMAGES),
    Mutant("images move along the diagonal", "data/images.py", "by - moves[:, 1:]", "by - moves[:, :1]", IMAGES),
    Mutant(
        "an image that decompresses to a huge size is read",
        "data/images.py",
        "    if size > MAX_BYTES:",
        "    if size < 0:",
        IMAGES,
    ),
    Mutant(
        "the label column of a table without heading is guessed",
        "data/images.py",
        'raise UserError(f"{path}: the table has no heading; {how}")',
        'return "last"',
        IMAGES,
    ),
    Mutant(
        "the space before a masked word stays",
        "decoding/encoder_inputs.py",
        "            result.pop()",
        "            pass",
        INPUTS,
    ),
    Mutant(
        "labels always exclude each other",
        "decoding/classifier.py",
        '("sigmoid" if multi_label else "softmax")',
        '"softmax"',
        ANSWERS,
    ),
    Mutant(
        "mean pooling counts padding",
        "decoding/embedder.py",
        "(states * mask[..., None]).sum(dim=1)",
        "states.sum(dim=1)",
        ANSWERS,
    ),
    Mutant(
        "an imported BERT always has two segments",
        "interop/huggingface/bert.py",
        '"type_vocab_size", 2)',
        '"segments", 2)',
        BERT_THERE,
    ),
    Mutant(
        "relative positions are read as learned ones",
        "interop/huggingface/bert.py",
        'hf.require("position_embedding_type", "absolute")',
        "pass",
        BERT_THERE,
    ),
    Mutant(
        "an image processor that crops is read as one that resizes",
        "interop/huggingface/vit.py",
        'hf.require("do_center_crop", False)',
        "pass",
        VIT_THERE,
    ),
    Mutant(
        "BPE merges are identified by their result alone",
        "interop/huggingface/tokenizer_export.py",
        "merges.sort(key=lambda merge: merge[:3])",
        "merges.sort(key=lambda merge: merge[0])",
        HF_TOKENIZERS,
    ),
    Mutant(
        "an exported tokenizer puts nothing before a text",
        "interop/huggingface/tokenizer_export.py",
        "first = [*special(before, 0), *text",
        "first = [*text",
        HF_TOKENIZERS,
    ),
    Mutant(
        "an imported tokenizer finds special tokens that it should split",
        "interop/huggingface/tokenizer_import.py",
        "split_special_tokens=bool(theirs.split_special_tokens)",
        "split_special_tokens=False",
        HF_TOKENIZERS,
    ),
    Mutant(
        "the general class has no special tokens of its own",
        "interop/huggingface/tokenizer_import.py",
        "        roles = usual | roles",
        "        pass",
        HF_TOKENIZERS,
    ),
    Mutant(
        "Marian's tokenizer ignores language tokens",
        "text/marian_tokenizer.py",
        "language = _LANGUAGE.match(part)",
        "language = None",
        HF_TOKENIZERS,
    ),
    Mutant(
        "a tokenizer with BPE dropout is accepted",
        "text/hf_tokenizer.py",
        'if model.get("dropout"):',
        'if model.get("chance"):',
        HF_TOKENIZERS,
    ),
    Mutant(
        "a tokenizer with two pieces of one id is accepted",
        "text/hf_tokenizer.py",
        "    if len(set(vocabulary.values())) < len(vocabulary):",
        "    if not vocabulary:",
        HF_TOKENIZERS,
    ),
    Mutant(
        "a word's label comes from its second token",
        "decoding/classifier.py",
        "accumulate(map(len, ids), initial=1)",
        "accumulate(map(len, ids), initial=2)",
        ("decoding/test_classifier.py",),
    ),
    Mutant(
        "both texts of a pair have the first segment",
        "decoding/encoder_inputs.py",
        "(positions >= begins[:, None])",
        "(positions < 0)",
        ("decoding/test_classifier.py",),
    ),
    Mutant(
        "a tokenizer.json's padding is kept", "text/hf_tokenizer.py", "    backend.no_padding()\n", "", HF_TOKENIZERS
    ),
    Mutant(
        "the separator is not the end of a text",
        "text/hf_tokenizer.py",
        'ids.get("sep_token", ids.get("eos_token", ids.get("pad_token", 0)))',
        'ids.get("pad_token", 0)',
        HF_TOKENIZERS,
    ),
    Mutant(
        "a special token that the model needs is dropped for lack of a row",
        "interop/huggingface/tokenizer_import.py",
        "if piece not in added or piece in required:",
        "if piece not in added:",
        HF_TOKENIZERS,
    ),
    Mutant(
        "a tokenizer.json with one key twice is accepted",
        "text/hf_tokenizer.py",
        "    if len(values) < len(pairs):\n        raise ValueError",
        "    if False:\n        raise ValueError",
        HF_TOKENIZERS,
    ),
]
