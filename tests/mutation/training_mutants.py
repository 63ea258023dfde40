"""Bugs to plant in the training tasks and their data."""

from mutant_kind import Mutant

LOSSES = ("training/test_task_losses.py",)
PARTS = ("training/test_finetuning.py",)
TASKS = ("training/test_tasks.py",)
TAGGED = ("data/test_conll.py",)
PRECISION = ("training/test_precision.py",)
LOSS = ("training/test_losses.py",)

IN_TRAINING = [
    Mutant(
        "a resumed run forgets the precision of the first machine",
        "training/runtime.py",
        'if settings.precision != "auto":',
        "if True:",
        PRECISION,
    ),
    Mutant(
        "R-Drop's gradient ignores the distance of the two passes",
        "training/losses.py",
        "logs.sub_(divergence).mul_(share)",
        "logs.mul_(share)",
        LOSS,
    ),
    Mutant(
        "R-Drop's gradient reaches only one of the two passes",
        "training/losses.py",
        "(q, p), strict=True",
        "(q, q), strict=True",
        LOSS,
    ),
    Mutant(
        "packed documents attend to each other in language modelling",
        "training/tasks/language_modeling.py",
        "documents=batch.documents if several else None",
        "documents=None",
        LOSSES,
    ),
    Mutant(
        "windows of a text depend on the rank",
        "data/datasets.py",
        "places = rng(seed).random(len(indices))",
        "places = rng(seed, len(rows)).random(len(indices))",
        LOSSES,
    ),
    Mutant(
        "the masked ids depend on the rank",
        "data/datasets.py",
        "self.masking(ids, rng(seed, int(row)))",
        "self.masking(ids, rng(seed, len(rows)))",
        LOSSES,
    ),
    Mutant(
        "noise depends on the rank",
        "data/datasets.py",
        "self.noise(ids, rng(seed, int(row)))",
        "self.noise(ids, rng(seed, len(rows)))",
        LOSSES,
    ),
    Mutant(
        "image augmentation depends on the rank",
        "data/images.py",
        "[rng(seed, int(row)) for row in rows]",
        "[rng(seed, len(rows)) for row in rows]",
        LOSSES,
    ),
    Mutant(
        "the masked language model's loss counts all tokens",
        "training/tasks/masked_language_modeling.py",
        "masked = batch.labels != IGNORE_INDEX",
        "masked = batch.mask",
        LOSSES,
    ),
    Mutant(
        "the loss of a patch is a sum instead of a mean",
        "training/tasks/images.py",
        'reduction="none").mean(dim=-1).sum()',
        'reduction="none").sum()',
        LOSSES,
    ),
    Mutant(
        "held-out lines at the end of a file are trained on, too",
        "data/splits.py",
        "training: list[Iterable[Example]] = [CharacterSlice(corpus, 0.0, kept) for corpus in corpora]",
        "training: list[Iterable[Example]] = [CharacterSlice(corpus, 0.0, 1.0) for corpus in corpora]",
        LOSSES,
    ),
    Mutant(
        "the ponder cost depends on gradient accumulation",
        "training/objectives.py",
        "+ model.config.ponder_weight * ponder",
        "+ model.config.ponder_weight * ponder / len(batch)",
        LOSSES,
    ),
    Mutant(
        "gradual unfreezing never unfreezes a layer",
        "training/finetuning.py",
        'group["depth"] >= top - step // every',
        'group["depth"] >= top',
        PARTS,
    ),
    Mutant(
        "a head is kept although the labels differ",
        "training/finetuning.py",
        "if _head_of(model) != _head_of(start.model):",
        "if False:",
        PARTS,
    ),
    Mutant(
        "layer-wise learning rates are ignored",
        "training/optim.py",
        'rate * group.get("share", 1.0)',
        "rate",
        PARTS,
    ),
    Mutant(
        "frozen parameters are trained",
        "training/finetuning.py",
        "parameter.requires_grad_(False)",
        "parameter.requires_grad_(True)",
        PARTS,
    ),
    Mutant(
        "adjacent spans with one label are merged",
        "data/conll.py",
        'kind in ("B", "S", "U", "O") or label != name',
        'kind in ("S", "U", "O") or label != name',
        TAGGED,
    ),
    Mutant(
        "a task accepts files of any kind",
        "training/tasks/registry.py",
        "if content != chosen.content:",
        "if False:",
        TASKS,
    ),
]
