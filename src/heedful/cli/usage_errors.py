"""Messages about a wrong command line: unknown options, missing arguments, and `--set` before the file."""

from collections.abc import Mapping, Sequence

import cyclopts

from heedful.errors import UserError

# A complete example of each command that has required arguments, for the message when one of them is missing.
EXAMPLES = {
    "train": "heedful train runs/mine --source train.en --target train.de",
    "generate": 'heedful generate "Once upon a time" -m runs/book',
    "fill": 'heedful fill "A [MASK] runs." -m runs/bert',
    "classify": "heedful classify lines.txt -m runs/mood",
    "embed": "heedful embed lines.txt -m runs/bert --output vectors.npy",
    "summarize": "heedful summarize articles.txt -m runs/news",
    "shortlist": "heedful shortlist runs/en-de text.en",
    "look": 'heedful look "She could not help laughing."',
    "convert": "heedful convert opus-mt-en-de models/en-de --format heedful",
}

# A training run that makes a model for a command without a built-in model.
MADE_BY = {
    "generate": "heedful train runs/book --family gpt --text book.txt",
    "fill": "heedful train runs/bert --family bert --text book.txt",
    "classify": "heedful train runs/mood --family bert --labels reviews.tsv",
    "embed": "heedful train runs/bert --family bert --text book.txt",
    "summarize": "heedful train runs/news --family t5 --source articles.txt --target summaries.txt",
}

_SEARCH = {
    "--max-len": "--set max_len=100",
    "--max-length": "--set max_len=100",
    "--min-len": "--set min_len=5",
    "--min-length": "--set min_len=5",
    "--length-penalty": "--set length_penalty=1.0",
    "--no-repeat-ngram": "--set no_repeat_ngram=3",
    "--no-repeat-ngram-size": "--set no_repeat_ngram=3",
    "--repetition-penalty": "--set repetition_penalty=1.2",
    "--num-beams": "--beam 4",
    "--beam-size": "--beam 4",
    "--num-return-sequences": "--n-best 3",
}

# command -> {an option of other programs, or of an older heedful: what to type instead}
INSTEAD: dict[str, Mapping[str, str]] = {
    "train": {
        "--accumulate": "--set run.micro_batches=4 (heedful cuts a batch into parts; its size is data.batch_tokens)",
        "--batch-size": "--set data.batch_tokens=4096 (the size of a batch is counted in tokens)",
        "--dropout": "--set model.dropout=0.1",
        "--early-stopping": "--set run.patience=10",
        "--epochs": "--steps 5000 (training is counted in steps: one step is one batch)",
        "--from": "--init-from RUN",
        "--label-smoothing": "--set loss.label_smoothing=0.1",
        "--languages": '--set \'data.languages=["en", "de"]\'',
        "--learning-rate": "--lr 0.001",
        "--max-len": "--set data.max_len=256",
        "--max-steps": "--steps 5000",
        "--model": "--family seq2seq for the kind of model, or --init-from RUN for a model to start from",
        "--num-epochs": "--steps 5000 (training is counted in steps: one step is one batch)",
        "--output": "RUN, the folder, without an option",
        "--patience": "--set run.patience=10",
        "--precision": "--set run.precision=bfloat16",
        "--save-every": "--set run.save_every=1000",
        "--threads": "--set run.threads=2",
        "--validate-every": "--set run.validate_every=500",
        "--vocab-size": "--set tokenizer.vocab_size=8000",
        "--warmup": "--set schedule.warmup_steps=1000",
        "--weight-decay": "--set optimiser.weight_decay=0.01",
    },
    "translate": {
        **_SEARCH,
        "--batch-size": "--workers 2 for more processes (the size of batches is chosen by heedful)",
        "--lang": "--from en --to fr",
        "--source": "the name of the file without an option, or --from en for its language",
        "--source-lang": "--from en",
        "--src-lang": "--from en",
        "--target": "--to fr",
        "--target-lang": "--to fr",
        "--tgt-lang": "--to fr",
    },
    "generate": {**_SEARCH, "--max-len": "--max-tokens 100", "--max-new-tokens": "--max-tokens 100"},
    "summarize": {
        **{option: setting for option, setting in _SEARCH.items() if setting.startswith("--set no_")},
        "--length-penalty": "--set length_penalty=1.0",
        "--max-length": "--max-len 100",
        "--min-length": "--min-len 5",
        "--num-beams": "--beam 4",
    },
    "convert": {"--to": "--format"},
    "evaluate": {
        "--reference": "--target FILE",
        "--references": "--target FILE",
        "--metrics": "no option: BLEU and chrF",
    },
}


def describe(error: cyclopts.CycloptsError) -> str:
    """Return the message for a command line that cannot be parsed, with the command's help to read."""
    chain = error.command_chain or ()
    command = chain[0] if chain else ""
    message = str(error)
    if isinstance(error, cyclopts.UnusedCliTokensError):
        message = f"nothing is expected after the other arguments, found: {' '.join(error.unused_tokens or ())}"
    elif option := _foreign_option(command, error):
        message = f"{command} has no {option}; use {INSTEAD[command][option]}"
    elif isinstance(error, cyclopts.MissingArgumentError) and error.argument is not None:
        if error.keyword is not None:
            message = f"{error.keyword}: expected a value"
        elif command in EXAMPLES:
            message = _missing(command, error.argument)
    return f"{message}\nSee: {' '.join(['heedful', *chain, '--help'])}"


def _foreign_option(command: str, error: cyclopts.CycloptsError) -> str | None:
    """Return the option in the error that has an entry in `INSTEAD`."""
    tokens = list(error.unused_tokens or ())
    if isinstance(error, cyclopts.UnknownOptionError):
        tokens.append(error.token.keyword or error.token.value)
    options = [token.partition("=")[0] for token in tokens]
    return next((option for option in options if option in INSTEAD.get(command, {})), None)


def _missing(command: str, argument: cyclopts.Argument) -> str:
    name = argument.name.removeprefix("--").upper() if argument.index is not None else argument.name
    message = f"{command} needs {name}. For example: {EXAMPLES[command]}"
    if name == "--model" and command in MADE_BY:
        message += f"\nA model for it: {MADE_BY[command]}"
    return message


def repeat_set(command: str, arguments: Sequence[str]) -> list[str]:
    """Turn `--set a=1 b=2 FILE` into `--set a=1 --set b=2 FILE`, so that the file is not read as a setting."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    result: list[str] = []
    in_settings = False
    for number, argument in enumerate(arguments[:end]):
        if number and arguments[number - 1] == "--set":
            if "=" not in argument:
                remedy = (
                    "" if argument.startswith("-") else f". A file comes first: heedful {command} {argument} --set …"
                )
                raise UserError(f"--set {argument}: expected key=value{remedy}")
            in_settings = True
            result.append(argument)
        elif in_settings and "=" in argument and not argument.startswith("-"):
            result += ["--set", argument]
        else:
            in_settings = False
            result.append(argument)
    return [*result, *arguments[end:]]
