"""Which keys of an object hold the texts: one search for JSONL and for Parquet."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

Content = Literal["pairs", "text", "labels"]
HOW_TO_CHOOSE = 'heedful check --languages en,de; heedful train --set \'data.languages=["en","de"]\''


class Fields(NamedTuple):
    """The two languages below "translation", or two keys side by side, or one."""

    names: tuple[str, ...]
    inside: str = ""  # the key of the object that holds them

    def of(self, row: Mapping[str, object]) -> list[str]:
        """The texts; ValueError says what is missing or no text."""
        holder: object = row
        if self.inside:
            holder = row.get(self.inside)
            if not isinstance(holder, Mapping):
                raise ValueError(f"no object below the key '{self.inside}'")
        assert isinstance(holder, Mapping)
        return [_text(holder, name) for name in self.names]

    def put(self, row: dict[str, object], texts: Sequence[str]) -> None:
        """Write `texts` back to where `of` found them."""
        holder = row[self.inside] if self.inside else row
        assert isinstance(holder, dict)
        holder.update(zip(self.names, texts, strict=True))


# Without languages given: the sets of keys that are looked for, in this order.
FLAT: dict[Content, tuple[tuple[str, ...], ...]] = {
    "pairs": (("source", "target"), ("src", "tgt")),
    "text": (("text",),),
    "labels": (("text", "label"),),
}


def find_fields(row: Mapping[str, object], content: Content, languages: tuple[str, str] | None) -> Fields:
    """The fields of the first object; ValueError says which keys it has and which are needed."""
    inner = row.get("translation")
    if content == "pairs" and isinstance(inner, Mapping):
        if languages is None and len(inner) != 2:
            raise ValueError(f"choose two of its languages ({HOW_TO_CHOOSE}): {_list(inner)}")
        pair = languages or tuple(inner)
        _need(inner, pair)
        return Fields(pair, inside="translation")
    if content == "pairs" and languages is not None and all(language in row for language in languages):
        return Fields(languages)
    for names in FLAT[content]:
        if all(name in row for name in names):
            return Fields(names)
    wanted = " and ".join(f"'{name}'" for name in FLAT[content][0])
    also = ""
    if content == "pairs":
        also = f" (or 'translation' with two languages, or two keys that are chosen: {HOW_TO_CHOOSE})"
    raise ValueError(f"needs {wanted}{also}; has only: {_list(row)}")


def _need(row: Mapping[str, object], names: Iterable[str]) -> None:
    for name in names:
        if name not in row:
            raise ValueError(f"no key '{name}'; the keys are: {_list(row)}")


def _text(row: Mapping[str, object], name: str) -> str:
    if name not in row:
        raise ValueError(f"no key '{name}'; the keys are: {_list(row)}")
    value = row[name]
    if isinstance(value, str):
        return value
    if value is None:  # Parquet and JSON both write null for "no translation": an empty side
        return ""
    if isinstance(value, int) and not isinstance(value, bool):  # labels are often numbers
        return str(value)
    raise ValueError(f"'{name}' is no text but {type(value).__name__}")


def _list(names: Iterable[str]) -> str:
    listed = list(names)
    return (", ".join(listed[:12]) + (", …" if len(listed) > 12 else "")) or "nothing"
