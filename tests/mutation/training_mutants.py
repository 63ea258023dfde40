"""The bugs that `make mutants` plants in the tasks of training and in their data."""

from mutant_kind import Mutant

LOSSES = ("training/test_task_losses.py",)
PARTS = ("training/test_finetuning.py",)
TASKS = ("training/test_tasks.py",)
TAGGED = ("data/test_conll.py",)
PRECISION = ("training/test_precision.py",)
LOSS = ("training/test_losses.py",)

IN_TRAINING = [
    Mutant(
        "the numbers of the first machine are forgotten",
        "training/runtime.py",
        'if settings.precision != "auto":',
        "if True:",
        PRECISION,
    ),
    Mutant(
        "two passes that should agree forget how far they are apart already",
        "training/losses.py",
        "logs.sub_(divergence).mul_(share)",
        "logs.mul_(share)",
        LOSS,
    ),
    Mutant(
        "only one of two passes moves towards the other",
        "training/losses.py",
        "(q, p), strict=True",
        "(q, q), strict=True",
        LOSS,
    ),
    Mutant(
        "packed documents see each other",
        "training/tasks/language_modeling.py",
        "documents=batch.documents if several else None",
        "documents=None",
        LOSSES,
    ),
    Mutant(
        "every rank draws other windows",
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
        "the changes of images depend on the rank",
        "data/images.py",
        "[rng(seed, int(row)) for row in rows]",
        "[rng(seed, len(rows)) for row in rows]",
        LOSSES,
    ),
    Mutant(
        "all tokens are asked for, not the hidden ones",
        "training/tasks/masked_language_modeling.py",
        "masked = batch.labels != IGNORE_INDEX",
        "masked = batch.mask",
        LOSSES,
    ),
    Mutant(
        "the error of a patch grows with its size",
        "training/tasks/images.py",
        'reduction="none").mean(dim=-1).sum()',
        'reduction="none").sum()',
        LOSSES,
    ),
    Mutant(
        "the end of a file is trained on and held out",
        "data/splits.py",
        "training: list[Iterable[Example]] = [CharacterSlice(corpus, 0.0, kept) for corpus in corpora]",
        "training: list[Iterable[Example]] = [CharacterSlice(corpus, 0.0, 1.0) for corpus in corpora]",
        LOSSES,
    ),
    Mutant(
        "the price of thinking depends on how a step is cut",
        "training/objectives.py",
        "+ model.config.ponder_weight * ponder",
        "+ model.config.ponder_weight * ponder / len(batch)",
        LOSSES,
    ),
    Mutant(
        "layers never wake",
        "training/finetuning.py",
        'group["depth"] >= top - step // every',
        'group["depth"] >= top',
        PARTS,
    ),
    Mutant(
        "a head keeps its numbers for other labels",
        "training/finetuning.py",
        "if _head_of(model) != _head_of(start.model):",
        "if False:",
        PARTS,
    ),
    Mutant(
        "all layers learn at one rate",
        "training/optim.py",
        'rate * group.get("share", 1.0)',
        "rate",
        PARTS,
    ),
    Mutant(
        "frozen parts learn",
        "training/finetuning.py",
        "parameter.requires_grad_(False)",
        "parameter.requires_grad_(True)",
        PARTS,
    ),
    Mutant(
        "a span continues into the next span with its label",
        "data/conll.py",
        'kind in ("B", "S", "U", "O") or label != name',
        'kind in ("S", "U", "O") or label != name',
        TAGGED,
    ),
    Mutant(
        "a task takes files of any kind",
        "training/tasks/registry.py",
        "if content != chosen.content:",
        "if False:",
        TASKS,
    ),
]
