"""Does a trace file have the shape that docs/look.md promises? Used by the tests, and by whoever reads such files."""

import math
from collections.abc import Callable, Mapping, Sequence

from heedful.insight.packing import unpack

Check = Callable[[object, str], None]
Sizes = Mapping[str, int]


class SchemaError(ValueError):
    """Where, and what is wrong there."""


def check_trace(trace: object) -> None:
    """Raise SchemaError at the first thing that is not as promised."""
    head = _object(
        format=_just("heedful-trace"), version=_just(1), model=_model, source=_any, target=_any, translation=_any
    )
    parts = ("attention", "alignment", "steps", "beam", "positions", "lens", "walk", "changes")
    if not isinstance(trace, dict):
        raise SchemaError("trace: not an object")
    head({name: one for name, one in trace.items() if name not in parts}, "trace")
    missing = [name for name in parts if name not in trace]
    if missing:
        raise SchemaError(f"trace: lacks {', '.join(missing)}")
    sizes = _sizes(trace)
    _texts(sizes)({name: trace[name] for name in ("source", "target", "translation")}, "trace")
    _object(
        attention=_attention(sizes),
        alignment=_list(_tuple(_index(sizes["S"]), _index(sizes["T"]))),
        steps=_list(_step, sizes["T"]),
        beam=_beam,
        positions=_positions(sizes),
        lens=_lens(sizes),
        walk=_walk(sizes, str(trace["model"]["config"]["residual"])),
        changes=_maybe(_CHANGES),
    )({name: trace[name] for name in parts}, "trace")


def _sizes(trace: dict[str, dict[str, object]]) -> dict[str, int]:
    model = trace["model"]
    sizes = {"E": model["n_encoder_layers"], "L": model["n_decoder_layers"], "H": model["n_heads"]}
    sizes |= {"D": model["d_model"], "K": model["d_head"], "F": model["d_ff"]}
    sizes |= {letter: len(trace[side].get("ids", ())) for letter, side in (("S", "source"), ("T", "target"))}  # type: ignore[arg-type]
    numbers = trace["walk"].get("numbers")
    sizes["n"] = numbers if type(numbers) is int else 0
    return sizes  # type: ignore[return-value]


# The kinds of values


def _any(value: object, where: str) -> None:
    pass


def _just(wanted: object) -> Check:
    def check(value: object, where: str) -> None:
        if value != wanted or type(value) is not type(wanted):
            raise SchemaError(f"{where}: expected {wanted!r}, found {value!r}")

    return check


def _one_of(*names: str) -> Check:
    def check(value: object, where: str) -> None:
        if value not in names:
            raise SchemaError(f"{where}: expected one of {', '.join(names)}, found {value!r}")

    return check


def _text(value: object, where: str) -> None:
    if not isinstance(value, str):
        raise SchemaError(f"{where}: expected a text, found {value!r}")


def _flag(value: object, where: str) -> None:
    if not isinstance(value, bool):
        raise SchemaError(f"{where}: expected true or false, found {value!r}")


def _index(count: float = math.inf) -> Check:
    def check(value: object, where: str) -> None:
        if type(value) is not int or not 0 <= value < count:
            raise SchemaError(f"{where}: expected a whole number from 0 and below {count}, found {value!r}")

    return check


_count = _index()


def _number(value: object, where: str) -> None:
    if type(value) not in (int, float) or not math.isfinite(value):  # type: ignore[arg-type]
        raise SchemaError(f"{where}: expected a number, found {value!r}")


def _probability(value: object, where: str) -> None:
    _number(value, where)
    if not -1e-6 <= value <= 1 + 1e-6:  # type: ignore[operator]
        raise SchemaError(f"{where}: expected a number from 0 to 1, found {value!r}")


def _list(check: Check, length: int | None = None) -> Check:
    def check_list(value: object, where: str) -> None:
        if not isinstance(value, list) or (length is not None and len(value) != length):
            size = len(value) if isinstance(value, list) else value
            raise SchemaError(
                f"{where}: expected a list of {'any number' if length is None else length}, found {size!r}"
            )
        for number, one in enumerate(value):
            check(one, f"{where}[{number}]")

    return check_list


def _tuple(*checks: Check) -> Check:
    def check(value: object, where: str) -> None:
        _list(_any, len(checks))(value, where)
        for one, check_one, number in zip(value, checks, range(len(checks)), strict=True):  # type: ignore[call-overload]
            check_one(one, f"{where}[{number}]")

    return check


def _maybe(check: Check) -> Check:
    return lambda value, where: None if value is None else check(value, where)


def _object(**checks: Check) -> Check:
    return _table(checks)


def _table(checks: Mapping[str, Check]) -> Check:
    """Exactly these keys."""

    def check(value: object, where: str) -> None:
        if not isinstance(value, dict):
            raise SchemaError(f"{where}: expected an object, found {value!r}")
        missing, surplus = sorted(set(checks) - set(value)), sorted(set(value) - set(checks))
        if missing or surplus:
            raise SchemaError(f"{where}: lacks {missing}, has {surplus} that nobody knows")
        for name, check_one in checks.items():
            check_one(value[name], f"{where}.{name}")

    return check


def _packed(*shape: int, broadcast: bool = False) -> Check:
    def check(value: object, where: str) -> None:
        try:
            found = unpack(value).shape
        except ValueError as error:
            raise SchemaError(f"{where}: {error}") from None
        same = [a == b or (broadcast and a == 1) for a, b in zip(found, shape, strict=False)]
        if len(found) != len(shape) or not all(same):
            raise SchemaError(f"{where}: expected the shape {list(shape)}, found {list(found)}")

    return check


# The parts of the file, in its order

_model = _object(
    name=_text,
    family=_just("seq2seq"),
    n_parameters=_count,
    config=_any,
    **dict.fromkeys(("n_encoder_layers", "n_decoder_layers", "n_heads", "n_kv_heads"), _count),
    **dict.fromkeys(("d_model", "d_head", "d_ff"), _count),
    embedding_scale=_number,
    attention_scale=_number,
    score=_one_of("dot", "additive"),
)


def _spans(length: int) -> Check:
    """[[first, end], …], in order, without gaps."""

    def check(value: object, where: str) -> None:
        _list(_tuple(_count, _count))(value, where)
        assert isinstance(value, list)
        starts, ends = [0, *(end for _, end in value)], [*(first for first, _ in value), length]
        if starts != ends or any(first >= end for first, end in value):
            raise SchemaError(f"{where}: words must follow each other from 0 to {length}, found {value}")

    return check


def _texts(sizes: Sizes) -> Check:
    n_source, n_target = sizes["S"], sizes["T"]
    source = _object(
        text=_text,
        tokens=_list(_text, n_source),
        ids=_list(_count, n_source),
        words=_spans(n_source),
        masked=_list(_index(n_source)),
    )
    target = _object(
        text=_text,
        kind=_one_of("own", "reference", "prefix"),
        tokens=_list(_text, n_target),
        ids=_list(_count, n_target),
        words=_spans(n_target),
        inputs=_list(_text, n_target),
        input_ids=_list(_count, n_target),
        input_words=_spans(n_target),
        n_forced=_index(n_target + 1),
    )
    return _object(
        source=source, target=target, translation=_object(text=_text, score=_number, rank=_number, complete=_flag)
    )


def _attention(sizes: Sizes) -> Check:
    def maps(layers: str, queries: str, keys: str, alignment: bool = False) -> Check:
        shape = (sizes[layers], sizes["H"], sizes[queries], sizes[keys])
        each = _list(_list(_number, sizes["H"]), sizes[layers])
        return _object(
            weights=_packed(*shape),
            scores=_packed(*shape),
            mask=_packed(*shape, broadcast=True),
            entropy=each,
            locality=each,
            alignment=each if alignment else _just(None),
        )

    return _object(encoder=maps("E", "S", "S"), decoder=maps("L", "T", "T"), cross=maps("L", "T", "S", True))


_step = _object(
    token=_text,
    id=_count,
    probability=_probability,
    rank=_count,
    logit=_number,
    log_sum=_number,
    entropy=_number,
    top=_list(_object(token=_text, id=_count, probability=_probability, logit=_number)),
)

_continuation = _object(text=_text, tokens=_list(_text), ids=_list(_count), score=_number)
_beam = _object(
    width=_count,
    length_penalty=_number,
    limit=_count,
    events=_list(
        _object(
            **dict.fromkeys(("node", "parent", "step", "id"), _count),
            token=_text,
            score=_number,
            rank=_number,
            fate=_one_of("kept", "finished", "pruned"),
            continuation=_maybe(_continuation),
        )
    ),
    hypotheses=_list(
        _object(
            text=_text,
            tokens=_list(_text),
            ids=_list(_count),
            score=_number,
            rank=_number,
            complete=_flag,
            nodes=_list(_count),
        )
    ),
)

_CHANGES = _object(
    without_heads=_list(_object(kind=_one_of("encoder", "decoder", "cross"), layer=_count, head=_count)),
    masked_words=_list(_count),
    before=_object(text=_text, score=_number),
    steps=_list(_object(token=_text, id=_count, before=_probability, after=_probability)),
)


def _positions(sizes: Sizes) -> Check:
    def check(value: object, where: str) -> None:
        rows = value.get("rows") if isinstance(value, dict) else None
        _count(rows, f"{where}.rows")
        assert isinstance(rows, int) and isinstance(value, dict)
        width = sizes["K"] if value.get("kind") == "rotary" else sizes["D"]
        bias = _packed(sizes["H"], rows, rows)
        _object(
            kind=_text,
            rows=_count,
            code=_maybe(_packed(rows, width)),
            target_code=_maybe(_packed(rows, width)),
            similarity=_maybe(_packed(rows, rows)),
            bias=_maybe(_object(encoder=bias, decoder=bias)),
        )(value, where)

    return check


def _lens(sizes: Sizes) -> Check:
    likely = _object(token=_text, id=_count, probability=_probability)
    steps = _list(_object(probability=_probability, rank=_count, entropy=_number, top=_list(likely)), sizes["T"])
    return _object(
        decoder=_list(_object(layer=_count, steps=steps), sizes["L"] + 1),
        encoder=_list(
            _object(layer=_count, text=_text, tokens=_list(_text), ids=_list(_count), steps=steps), sizes["E"] + 1
        ),
    )


def _walk(sizes: Sizes, residual: str) -> Check:
    def vector(width: str, *shape: str) -> Check:
        places = [sizes[letter] for letter in shape]
        return _object(first=_packed(*places, min(sizes["n"], sizes[width])), norm=_packed(*places))

    def start(tokens: str) -> Check:
        one = vector("D", tokens)
        return _object(embedding=one, scaled=one, position=_maybe(one), input=one)

    def attention(queries: str, keys: str) -> Check:
        query, key = vector("K", "H", queries), vector("K", "H", keys)
        return _object(q=query, k=key, v=key, heads=query, out=vector("D", queries), bias=_flag)

    def layer(tokens: str, attentions: Mapping[str, Check]) -> Check:
        inner, wide = vector("F", tokens), vector("D", tokens)
        parts: dict[str, Check] = dict(attentions)
        parts["feed_forward"] = _object(inner=inner, gate=_maybe(inner), activated=inner, out=wide)
        for name in list(parts):
            parts |= {f"{name}.added": _just(None) if residual == "none" else wide, f"{name}.norm": wide}
        return _table(parts)

    def end(tokens: str) -> Check:
        return _object(norm=vector("D", tokens) if residual == "pre" else _just(None))

    names: Sequence[str] = ("encoder_steps", "decoder_steps")
    decoder = {"attention": attention("T", "T"), "cross_attention": attention("T", "S")}
    return _object(
        numbers=_count,
        encoder_start=start("S"),
        decoder_start=start("T"),
        encoder=_list(layer("S", {"attention": attention("S", "S")}), sizes["E"]),
        decoder=_list(layer("T", decoder), sizes["L"]),
        encoder_end=end("S"),
        decoder_end=end("T"),
        **dict.fromkeys(names, _list(_text)),
    )
