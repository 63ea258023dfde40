"""docs/look.md: its code runs, its options and names are those of the program."""

import re
from pathlib import Path

import pytest

from heedful.cli.main import make_app
from heedful.insight.html_export import PAGE
from heedful.insight.look import look
from heedful.models.model_io import save_model
from look_models import look_model, tokenizers

DOCUMENT = (Path(__file__).parents[2] / "docs/look.md").read_text(encoding="utf-8")


def test_the_code_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save_model(tmp_path / "runs/en-de", look_model().model, tokenizers())
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT, flags=re.DOTALL)
    assert len(blocks) == 2
    code = "\n".join(blocks)
    if not (PAGE / "index.html").exists():
        code = code.replace("page.html", "trace.json")
    exec(compile(code, "docs/look.md", "exec"), {})


def test_every_option_has_a_row() -> None:
    app = make_app()
    options = app["look"].assemble_argument_collection(default_parameter=app.default_parameter, parse_docstring=True)
    for option in options:
        assert any(f"`{name}" in DOCUMENT for name in option.names) or option.name == "--sentence", option.name


def test_every_part_of_the_trace_is_described() -> None:
    described = DOCUMENT[DOCUMENT.index("## The trace file") :]

    def names(value: object) -> set[str]:
        if isinstance(value, dict):
            below = (names(one) for name, one in value.items() if name != "config")
            return set(value).union(*below)
        return set().union(*(names(one) for one in value)) if isinstance(value, list) else set()

    found = look(look_model(), "A dog runs.", beam=2, branches=1, masked_words=[0]).to_values()
    assert [
        name for name in sorted(names(found)) if not re.search(rf"(?<![\w]){re.escape(name)}(?![\w])", described)
    ] == []
