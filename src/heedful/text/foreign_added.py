"""Pieces of a public tokenizer that are found as a whole, before anything else is done to a text.

They stand in up to four files (`tokenizer.json`, `tokenizer_config.json`, `special_tokens_map.json`,
`added_tokens.json`), and which of them counts is for Hugging Face's Transformers 5 to say: the order here is its order.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from heedful.errors import UserError

Token = dict[str, Any]  # as it stands in a tokenizer.json, without its id

ROLES = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
EXTRA, ADDITIONAL, NUMBERED = "extra_special_tokens", "additional_special_tokens", "added_tokens_decoder"
SPLIT = "split_special_tokens"  # those that are written out in a text are cut as if they were none
N_SENTINELS = 100  # T5's <extra_id_0> … <extra_id_99>


@dataclass(frozen=True, kw_only=True)
class Given:
    """What the small files of a folder say: switches, parts of special pieces, pieces that are found as a whole."""

    values: Mapping[str, Any]
    roles: Mapping[str, str]
    numbered: Mapping[int, Token]  # in the order of these numbers; the ids are the vocabulary's, or follow its last
    where: str

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        if value is not None and not isinstance(value, bool):
            raise UserError(f"{self.where}: '{name}' must be true or false, found {value!r}")
        return default if value is None else value

    @property
    def splits_special(self) -> bool:
        return self.flag(SPLIT, False)

    def additional(self) -> list[Token]:
        return _tokens(self.values.get(ADDITIONAL), where=self.where)

    def sentinels(self) -> list[str]:
        """T5's, the last first, as they stand in its vocabulary."""
        n_sentinels = self.values.get("extra_ids", N_SENTINELS)
        if type(n_sentinels) is not int or not 0 <= n_sentinels <= 10_000:
            raise UserError(f"{self.where}: 'extra_ids' must be a number from 0 to 10,000, found {n_sentinels!r}")
        return [f"<extra_id_{number}>" for number in reversed(range(n_sentinels))]

    def whole(self, additional: Sequence[Token]) -> list[Token]:
        """The pieces that are found as a whole, in the order of adding; `additional` where the settings name none."""
        extra = self.values.get(EXTRA, additional)
        parts = [
            *(_named(self.values, role, piece, self.where) for role, piece in self.roles.items()),
            *(extra.values() if isinstance(extra, dict) else ()),
            *(value for name, value in self.values.items() if _is_role(name, value) and name not in ROLES),
        ]
        named = _tokens(parts, where=self.where)
        found = {token["content"]: token for _, token in sorted(self.numbered.items())}
        for token in [*named, *_tokens([] if isinstance(extra, dict) else extra, where=self.where)]:
            found.setdefault(token["content"], token)
        for token in named:
            found[token["content"]] = {**found[token["content"]], "special": True}
        return list(found.values())


def merge_settings(config: Mapping[str, Any], special: Mapping[str, Any]) -> dict[str, Any]:
    """tokenizer_config.json, with special_tokens_map.json over it; one that numbers its pieces says all there is."""
    values = dict(config)
    if ADDITIONAL in values and not values.get(EXTRA):
        values[EXTRA] = values.pop(ADDITIONAL)
    if NUMBERED in values:
        return values
    merged = values | dict(special)
    if isinstance(values.get(EXTRA), list) and isinstance(special.get(EXTRA), list):
        merged[EXTRA] = values[EXTRA] + [token for token in special[EXTRA] if token not in values[EXTRA]]
    return merged


def numbered_tokens(
    values: Mapping[str, Any], added: Mapping[str, Any], written: Iterable[Mapping[str, Any]], *, where: str
) -> dict[int, Token]:
    """By number: those of the settings, or else of added_tokens.json (`added`) and of tokenizer.json (`written`)."""
    if NUMBERED in values:
        numbered = values[NUMBERED]
        if not isinstance(numbered, dict) or not all(number.isdecimal() for number in numbered):
            raise UserError(f"{where}: '{NUMBERED}' must give a piece for each number, found {str(numbered)[:60]}")
        return {int(number): token_of(token, special=False, where=where) for number, token in numbered.items()}
    extra = _tokens(values.get(EXTRA) if isinstance(values.get(EXTRA), list) else None, where=where)
    special = {*read_roles(values, where=where).values(), *(token["content"] for token in extra)}
    found = {}
    for piece, number in added.items():
        if type(number) is not int:
            raise UserError(f"{where}: the added piece {piece[:60]!r} must have a number, found {str(number)[:60]}")
        found[number] = token_of(piece, special=piece in special, where=where)
    return found | {token["id"]: token_of(token, special=False, where=where) for token in written}


def read_roles(values: Mapping[str, object], *, where: str) -> dict[str, str]:
    """The special pieces that a settings file of Hugging Face's names, by their part in a text."""
    roles = {}
    for role in ROLES:
        value = values.get(role)
        if isinstance(value, dict):  # an added token with all its properties
            value = value.get("content")
        if value is None:
            continue
        if not isinstance(value, str) or not 0 < len(value) <= 1000:
            raise UserError(f"{where}: '{role}' must be a piece of the vocabulary, found {value!r}")
        roles[role] = value
    return roles


def token_of(value: object, *, special: bool, where: str) -> Token:
    """One piece, written alone or with its properties. One that is not special is found in the normalised text."""
    given = {"content": value, "special": special} if isinstance(value, str) else value
    if not isinstance(given, dict) or not isinstance(given.get("content"), str) or not given["content"]:
        raise UserError(f"{where}: an added piece must be a text, or have one as 'content', found {str(value)[:60]}")
    special = given.get("special", special)
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": not special, "special": special}
    flags |= {name: flag for name, flag in given.items() if name in flags}
    if bad := next((name for name, flag in flags.items() if not isinstance(flag, bool)), None):
        raise UserError(f"{where}: '{bad}' of {given['content'][:60]!r} must be true or false, found {flags[bad]!r}")
    return {"content": given["content"], **flags}


def added_tokens(vocabulary: Mapping[str, int], tokens: Iterable[Token]) -> list[Token]:
    """The pieces with their ids; one that the vocabulary lacks comes after its last."""
    ids: dict[str, int] = {}
    given = {token["content"]: token for token in tokens}
    for piece in given:
        following = max(len(vocabulary), max(ids.values(), default=-1) + 1)
        ids[piece] = vocabulary.get(piece, following)
    return [{"id": number, **given[piece]} for piece, number in sorted(ids.items(), key=lambda item: item[1])]


def _named(values: Mapping[str, Any], role: str, piece: str, where: str) -> Token:
    value = values.get(role)
    return token_of({"special": True, **value} if isinstance(value, dict) else piece, special=True, where=where)


def _is_role(name: str, value: object) -> bool:
    """A part that only some model has, such as `image_token`."""
    return name.endswith("_token") and isinstance(value, (str, dict))


def _tokens(values: object, *, where: str) -> list[Token]:
    if not isinstance(values, (list, type(None))):
        raise UserError(f"{where}: the special pieces must be a list, found {str(values)[:60]}")
    return [token_of(value, special=True, where=where) for value in values or []]
