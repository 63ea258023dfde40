"""Bugs to plant in BERT, ViT, images, the tokenizers of public checkpoints, and what encoders answer."""

from mutant_kind import Mutant

BERT, VIT, IMAGES, PATCHES = (
    ("models/test_bert.py",),
    ("models/test_vit.py",),
    ("data/test_images.py",),
    ("nn/test_patches.py",),
)
BERT_THERE, VIT_THERE = ("parity/test_bert_parity.py",), ("parity/test_vit_parity.py",)
FILL, ANSWERS, FOREIGN = (
    ("decoding/test_fill.py",),
    ("decoding/test_classify_embed.py",),
    ("text/test_foreign.py",),
)

IN_ENCODERS = [
    Mutant("BERT reads padding", "models/bert.py", "None if mask is None else padding_mask(mask)", "None", BERT),
    Mutant("BERT knows no segments", "models/bert.py", "self.embedding(ids) + segment", "self.embedding(ids)", BERT),
    Mutant("BERT's head has words of its own", "models/bert.py", "self.head.share(self.embedding.table)", "pass", BERT),
    Mutant(
        "ViT leaves patches in their order",
        "models/vit.py",
        "            x = reordered(x, order)",
        "            pass",
        VIT,
    ),
    Mutant(
        "ViT sees hidden patches",
        "models/vit.py",
        "            x = self.mask_token(x, masked)",
        "            pass",
        VIT,
    ),
    Mutant(
        "patches go down before they go across",
        "nn/embeddings.py",
        "grid.permute(0, 2, 4, 1, 3, 5)",
        "grid.permute(0, 4, 2, 1, 3, 5)",
        PATCHES,
    ),
    Mutant("no image is flipped", "data/images.py", "pixels[..., ::-1], pixels)", "pixels, pixels)", IMAGES),
    Mutant("images move along the diagonal", "data/images.py", "by - moves[:, 1:]", "by - moves[:, :1]", IMAGES),
    Mutant("a bomb is unpacked", "data/images.py", "    if size > MAX_BYTES:", "    if size < 0:", IMAGES),
    Mutant(
        "the label of a table is guessed",
        "data/images.py",
        'raise UserError(f"{path}: the table has no heading; {how}")',
        'return "last"',
        IMAGES,
    ),
    Mutant(
        "the space of a hidden word stays",
        "decoding/encoder_inputs.py",
        "            result.pop()",
        "            pass",
        FILL,
    ),
    Mutant(
        "labels always exclude each other",
        "decoding/classifier.py",
        '("softmax" if exclusive else "sigmoid")',
        '"softmax"',
        ANSWERS,
    ),
    Mutant(
        "padding counts in the mean",
        "decoding/embedder.py",
        "(states * real[..., None]).sum(dim=1)",
        "states.sum(dim=1)",
        ANSWERS,
    ),
    Mutant(
        "BERT's segments are always two",
        "interop/huggingface/bert.py",
        '"type_vocab_size", 2)',
        '"segments", 2)',
        BERT_THERE,
    ),
    Mutant(
        "relative positions are read as learned ones",
        "interop/huggingface/bert.py",
        'given.require("position_embedding_type", "absolute")',
        "pass",
        BERT_THERE,
    ),
    Mutant(
        "images that are cropped are read as whole",
        "interop/huggingface/vit.py",
        'given.require("do_center_crop", False)',
        "pass",
        VIT_THERE,
    ),
    Mutant(
        "Chinese signs stay together",
        "text/foreign_build.py",
        'given.flag("tokenize_chinese_chars", True)',
        "False",
        FOREIGN,
    ),
    Mutant(
        "merges go by what they make alone",
        "text/foreign_build.py",
        "merges.sort(key=lambda merge: merge[:3])",
        "merges.sort(key=lambda merge: merge[0])",
        FOREIGN,
    ),
    Mutant("T5 normalises nothing", "text/foreign_build.py", "normalizer=_precompiled(charsmap),", "", FOREIGN),
    Mutant(
        "a pair of marks is left out there",
        "text/foreign_build.py",
        '"single": [*mark(first, 0), *text("A", 0), *mark(last, 0)]',
        '"single": text("A", 0)',
        FOREIGN,
    ),
    Mutant(
        "Marian knows no languages",
        "text/marian_tokenizer.py",
        "language = _LANGUAGE.match(part)",
        "language = None",
        FOREIGN,
    ),
    Mutant(
        "merges may be dropped at random",
        "text/hf_tokenizer.py",
        'if model.get("dropout"):',
        'if model.get("chance"):',
        FOREIGN,
    ),
    Mutant(
        "two pieces may share an id",
        "text/hf_tokenizer.py",
        "    if len(set(vocabulary.values())) < len(vocabulary):",
        "    if not vocabulary:",
        FOREIGN,
    ),
    Mutant(
        "every tokenizer.json is taken as it stands", "text/foreign.py", "if family != GENERAL:", "if False:", FOREIGN
    ),
    Mutant(
        "pieces of the settings are not found",
        "text/foreign_added.py",
        "for _, token in sorted(self.numbered.items())",
        "for _, token in ()",
        FOREIGN,
    ),
    Mutant(
        "a word has the label of its second token",
        "decoding/classifier.py",
        "accumulate(map(len, ids), initial=1)",
        "accumulate(map(len, ids), initial=2)",
        ("decoding/test_classify_embed.py",),
    ),
    Mutant(
        "a pair has one segment",
        "decoding/encoder_inputs.py",
        "(places >= begins[:, None])",
        "(places < 0)",
        ("decoding/test_classify_embed.py",),
    ),
    Mutant("a tokenizer pads", "text/hf_tokenizer.py", "    backend.no_padding()\n", "", FOREIGN),
    Mutant(
        "a separator is no end",
        "text/hf_tokenizer.py",
        'ids.get("sep_token", ids.get("eos_token", ids.get("pad_token", 0)))',
        'ids.get("pad_token", 0)',
        FOREIGN,
    ),
]
