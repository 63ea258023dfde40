"""Write the page as one HTML file that opens from disk, with scripts, styles and the trace inside (docs/look.md).

Browsers load no modules from file://, so each module becomes a function in one script, called in the order of the
imports. This is not a general bundler: it supports the forms of import and export that the page uses, and no others.
"""

import base64
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape
from pathlib import Path, PurePosixPath

PAGE = Path(__file__).parents[1] / "page"

POLICY = (
    "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data: blob:; "
    "base-uri 'none'; form-action 'none'"
)
_NAME = r"[A-Za-z_$][\w$]*"
_IMPORT = re.compile(r"""^import\s+(?:([\w$\s{},*]+?)\s+from\s+)?["'](\.{1,2}/[\w./-]+)["'];?[ \t]*$""", re.MULTILINE)
_NAMED_EXPORT = re.compile(rf"^export\s+((?:async\s+)?function\s*\*?|class|const)\s+({_NAME})", re.MULTILINE)
_DEFAULT_EXPORT = re.compile(rf"^export\s+default\s+(?:((?:async\s+)?function\s*\*?|class)\s+({_NAME}))?", re.MULTILINE)
_EXPORT_LIST = re.compile(r"^export\s*\{([\w$\s,]*)\};?[ \t]*$", re.MULTILINE)
_REFUSED = (
    (re.compile(r"^(?:import|export)\b.*$", re.MULTILINE), "a form of import or export that the page must not use"),
    (re.compile(r"^(?!\s*(?://|\*|/\*)).*\bimport\s*[(.]", re.MULTILINE), "a dynamic import, or import.meta"),
    (re.compile(r"^(?!.*\basync\b)[^\s/*].*\bawait\b", re.MULTILINE), "await outside a function"),
    (re.compile(r"</script|<!--", re.IGNORECASE), "a text that would end the script element"),
)
_STYLE = re.compile(r"""<link\b(?=[^>]*\brel="stylesheet")[^>]*\bhref="([^"]+)"[^>]*>""")
_ICON = re.compile(r"""(<link\b(?=[^>]*\brel="icon")[^>]*\bhref=")(?!data:)([^"]+)("[^>]*>)""")
_SCRIPT = re.compile(r"""<script\b(?=[^>]*\btype="module")[^>]*\bsrc="([^"]+)"[^>]*>\s*</script>""")
_PRELOAD = re.compile(r"""[ \t]*<link\b(?=[^>]*\brel="modulepreload")[^>]*>\n?""")
_TRACE = re.compile(r"""(<script\b(?=[^>]*\bid="heedful-trace")[^>]*>)\s*(</script>)""")
_LOADS = re.compile(r"""<[^>]*\b(?:src|srcset)="(?!data:)[^"]*"|<link\b[^>]*\bhref="(?!data:)[^"]*"[^>]*>""")
_CSS_LOADS = re.compile(r"""@import|url\(\s*["']?(?!data:|#)""", re.IGNORECASE)


class PageError(Exception):
    """A file of the page uses a form that the bundler does not support: a bug of heedful, which the tests find."""


def stand_alone_page(data: dict[str, object], *, folder: Path = PAGE) -> str:
    """Return one HTML document made of the page's files, with the trace inside."""
    html = (folder / "index.html").read_text(encoding="utf-8")
    html = _PRELOAD.sub("", html)
    html = _once(_SCRIPT, html, lambda match: f'<script type="module">\n{bundle(folder, match[1])}</script>')
    html = _STYLE.sub(lambda match: f"<style>\n{_style(folder, match[1])}</style>", html)
    html = _ICON.sub(lambda match: f"{match[1]}{_icon(folder, match[2])}{match[3]}", html)
    if loads := _LOADS.search(_TRACE.sub("", html)):
        raise PageError(f"index.html would load something: {loads[0]}")
    meta = f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
    html = _once(re.compile(r"<meta charset[^>]*>"), html, lambda match: f"{match[0]}\n{meta}")
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return _once(_TRACE, html, lambda match: f"{match[1]}{text}{match[2]}")


def framed(page: str) -> str:
    """Return a page in a sandboxed frame for a notebook; its scripts cannot reach the notebook."""
    return f'<iframe sandbox="allow-scripts" srcdoc="{escape(page)}" style="width:100%;height:50rem;border:0"></iframe>'


def bundle(folder: Path, entry: str) -> str:
    """Bundle the entry module and everything that it imports into one script without imports."""
    modules: dict[PurePosixPath, _Module] = {}
    _collect(folder, _inside(PurePosixPath(), entry, "index.html"), modules, ())
    names = {path: f"module_{number}" for number, path in enumerate(modules)}
    parts = []
    for path, module in modules.items():
        imports = "".join(_bound(clause, names[wanted]) for clause, wanted in module.imports)
        exports = ", ".join(f"{outside}: {inside}" for outside, inside in module.exports.items())
        parts.append(
            f"// {path}\nconst {names[path]} = (() => {{\n{imports}{module.body.rstrip()}\n"
            f"return {{ {exports} }};\n}})();\n"
        )
    return "\n".join(parts)


@dataclass
class _Module:
    body: str
    imports: list[tuple[str, PurePosixPath]] = field(default_factory=list)  # (names between import and from, module)
    exports: dict[str, str] = field(default_factory=dict)  # exported name -> local name


def _collect(
    folder: Path, path: PurePosixPath, modules: dict[PurePosixPath, _Module], on_the_way: tuple[PurePosixPath, ...]
) -> None:
    """Add a module to `modules` after the modules that it imports."""
    if path in on_the_way:
        raise PageError(f"{path}: imports itself through {' → '.join(map(str, on_the_way))}")
    if path in modules:
        return
    module = _read_module((folder / path).read_text(encoding="utf-8"), path)
    for _, wanted in module.imports:
        _collect(folder, wanted, modules, (*on_the_way, path))
    modules[path] = module


def _read_module(text: str, path: PurePosixPath) -> _Module:
    module = _Module(text)
    for match in _IMPORT.finditer(text):
        module.imports.append((match[1] or "", _inside(path.parent, match[2], str(path))))
    module.body = _IMPORT.sub(_blank, module.body)
    for match in _EXPORT_LIST.finditer(module.body):
        for one in filter(None, (part.strip() for part in match[1].split(","))):
            inside, _, outside = one.partition(" as ")
            module.exports[outside.strip() or inside.strip()] = inside.strip()
    module.body = _EXPORT_LIST.sub(_blank, module.body)
    module.body = _DEFAULT_EXPORT.sub(lambda match: _default(match, module), module.body)
    module.exports |= {match[2]: match[2] for match in _NAMED_EXPORT.finditer(module.body)}
    module.body = _NAMED_EXPORT.sub(r"\1 \2", module.body)
    for pattern, what in _REFUSED:
        if refused := pattern.search(module.body):
            line = module.body.count("\n", 0, refused.end()) + 1
            raise PageError(f"{path}:{line}: {what}: {refused[0].strip()[:80]}")
    return module


def _default(match: re.Match[str], module: _Module) -> str:
    if match[2]:
        module.exports["default"] = match[2]
        return f"{match[1]} {match[2]}"
    module.exports["default"] = "default_export"
    return "const default_export = "


def _bound(clause: str, name: str) -> str:
    """Translate the names of an import, such as `a, { b as c }` or `* as x`, into constants."""
    lines = []
    if names := re.search(r"\{([^}]*)\}", clause):
        pairs = [part.split(" as ") for part in map(str.strip, names[1].split(",")) if part]
        wanted = ", ".join(
            pair[0].strip() if len(pair) == 1 else f"{pair[0].strip()}: {pair[1].strip()}" for pair in pairs
        )
        lines.append(f"const {{ {wanted} }} = {name};\n")
    rest = re.sub(r"\{[^}]*\}", "", clause)
    for part in filter(None, (one.strip() for one in rest.split(","))):
        everything = re.fullmatch(rf"\*\s+as\s+({_NAME})", part)
        lines.append(f"const {everything[1]} = {name};\n" if everything else f"const {part} = {name}.default;\n")
    return "".join(lines)


def _blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")  # keeps the line numbers


def _inside(base: PurePosixPath, name: str, where: str) -> PurePosixPath:
    """Resolve a path relative to the page's folder; raise a PageError if it leaves the folder."""
    parts: list[str] = []
    for part in (base / name).parts:
        if part == ".." and not parts:
            raise PageError(f"{where}: {name} lies outside the page")
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return PurePosixPath(*parts)


def _style(folder: Path, name: str) -> str:
    text = (folder / _inside(PurePosixPath(), name, "index.html")).read_text(encoding="utf-8")
    if match := _CSS_LOADS.search(text):
        raise PageError(f"{name}: would load something: {match[0]}")
    if "</style" in text.lower():
        raise PageError(f"{name}: a text that would end the style element")
    return text


def _icon(folder: Path, name: str) -> str:
    data = (folder / _inside(PurePosixPath(), name, "index.html")).read_bytes()
    return f"data:image/svg+xml;base64,{base64.b64encode(data).decode('ascii')}"


def _once(pattern: re.Pattern[str], html: str, replace: Callable[[re.Match[str]], str]) -> str:
    """Replace the only match of a pattern."""
    matches = list(pattern.finditer(html))
    if len(matches) != 1:
        raise PageError(f"index.html: expected one match of {pattern.pattern!r}, found {len(matches)}")
    return html[: matches[0].start()] + replace(matches[0]) + html[matches[0].end() :]
