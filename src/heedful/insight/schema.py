"""Does a trace file have the shape that docs/look.md promises? Used by the tests, and by whoever reads such files."""

from collections.abc import Mapping, Sequence

from heedful.insight.look_file import ATTENTION_KINDS as KINDS
from heedful.insight.look_file import FORMAT, PARTS, VERSION
from heedful.insight.schema_kinds import (
    Check,
    SchemaError,
    anything,
    count,
    flag,
    index,
    just,
    list_of,
    maybe,
    number,
    object_of,
    one_of,
    packed,
    probability,
    table_of,
    text,
    tuple_of,
)
from heedful.models.model_info import COMMANDS

__all__ = ["SchemaError", "check_trace"]

Sizes = Mapping[str, int]


def check_trace(trace: object) -> None:
    """Raise SchemaError at the first thing that is not as promised."""
    if not isinstance(trace, dict):
        raise SchemaError("trace: not an object")
    parts = dict.fromkeys(PARTS, anything) | {"model": _model}
    table_of({"format": just(FORMAT), "version": just(VERSION), **parts})(trace, "trace")
    family, sizes = trace["model"]["family"], _sizes(trace)
    reads, writes = family != "gpt", family not in ("bert", "vit")

    def where(there: bool, check: Check) -> Check:
        return check if there else just(None)

    both = reads and writes
    table_of(
        {
            "source": where(reads, _source(sizes)),
            "target": where(writes, _target(sizes)),
            "translation": where(writes, object_of(text=text, score=number, rank=number, complete=flag)),
            "attention": _attention(sizes, {"encoder": reads, "decoder": writes, "cross": both}),
            "alignment": where(both, list_of(tuple_of(index(sizes["S"]), index(sizes["T"])))),
            "steps": where(writes, list_of(_step, sizes["T"])),
            "beam": where(both, _beam),
            "positions": _positions(sizes),
            "lens": where(writes, _lens(sizes, with_encoder=reads)),
            "causes": maybe(_causes(trace, sizes)) if both else just(None),
            "walk": _walk(sizes, trace["model"]["residual"], reads=reads, writes=writes, family=family),
            "halting": maybe(_halting(sizes)) if family == "universal" else just(None),
            "changes": maybe(_CHANGES) if both else just(None),
            "answer": where(not writes, list_of(_answer(sizes))),
            "image": where(family == "vit", object_of(url=text, rows=count, columns=count)),
            "pieces": maybe(_PIECES) if both else just(None),
        }
    )({name: trace[name] for name in PARTS if name != "model"}, "trace")


def _sizes(trace: dict[str, dict[str, object]]) -> dict[str, int]:
    model = trace["model"]
    sizes = {"E": model["n_encoder_layers"], "L": model["n_decoder_layers"], "H": model["n_heads"]}
    sizes |= {"D": model["d_model"], "K": model["d_head"], "F": model["d_ff"]}
    for letter, side in (("S", "source"), ("T", "target")):
        ids = trace[side].get("ids", ()) if isinstance(trace[side], dict) else ()
        sizes[letter] = len(ids)  # type: ignore[arg-type]
    numbers = trace["walk"].get("numbers") if isinstance(trace["walk"], dict) else 0
    sizes["n"] = numbers if type(numbers) is int else 0
    return sizes  # type: ignore[return-value]


# The parts of the file, in its order

_model = object_of(
    name=text,
    family=one_of(*COMMANDS),
    n_parameters=count,
    config=anything,
    **dict.fromkeys(("n_encoder_layers", "n_decoder_layers", "n_heads", "n_kv_heads"), count),
    **dict.fromkeys(("d_model", "d_head", "d_ff"), count),
    residual=one_of("pre", "post", "none"),
    norm=one_of("layer", "rms", "batch"),
    activation=text,
    vocab_size=maybe(count),
    embedding_scale=number,
    attention_scale=number,
    output_scale=number,
    score=one_of("dot", "additive"),
)


def _spans(length: int) -> Check:
    """[[first, end], …], in order, without gaps."""

    def check(value: object, where: str) -> None:
        list_of(tuple_of(count, count))(value, where)
        assert isinstance(value, list)
        starts, ends = [0, *(end for _, end in value)], [*(first for first, _ in value), length]
        if starts != ends or any(first >= end for first, end in value):
            raise SchemaError(f"{where}: words must follow each other from 0 to {length}, found {value}")

    return check


def _source(sizes: Sizes) -> Check:
    n = sizes["S"]
    return object_of(
        text=text, tokens=list_of(text, n), ids=list_of(count, n), words=_spans(n), masked=list_of(index(n))
    )


def _target(sizes: Sizes) -> Check:
    n = sizes["T"]
    return object_of(
        text=text,
        kind=one_of("own", "reference", "prefix"),
        tokens=list_of(text, n),
        ids=list_of(count, n),
        words=_spans(n),
        inputs=list_of(text, n),
        input_ids=list_of(count, n),
        input_words=_spans(n),
        n_forced=index(n + 1),
    )


def _attention(sizes: Sizes, there: Mapping[str, bool]) -> Check:
    def maps(layers: str, queries: str, keys: str, alignment: bool = False) -> Check:
        shape = (sizes[layers], sizes["H"], sizes[queries], sizes[keys])
        each = list_of(list_of(number, sizes["H"]), sizes[layers])
        return object_of(
            weights=packed(*shape),
            scores=packed(*shape),
            mask=packed(*shape, broadcast=True),
            entropy=each,
            locality=each,
            alignment=each if alignment else just(None),
        )

    kinds = {"encoder": maps("E", "S", "S"), "decoder": maps("L", "T", "T"), "cross": maps("L", "T", "S", True)}
    return table_of({kind: kinds[kind] if there[kind] else just(None) for kind in KINDS})


_step = object_of(
    token=text,
    id=count,
    probability=probability,
    rank=count,
    logit=number,
    log_sum=number,
    entropy=number,
    top=list_of(object_of(token=text, id=count, probability=probability, logit=number)),
)

_continuation = object_of(text=text, tokens=list_of(text), ids=list_of(count), score=number)
_beam = object_of(
    width=count,
    length_penalty=number,
    limit=count,
    n_opening=count,
    events=list_of(
        object_of(
            **dict.fromkeys(("node", "parent", "step", "id"), count),
            token=text,
            score=number,
            rank=number,
            fate=one_of("kept", "finished", "pruned"),
            continuation=maybe(_continuation),
        )
    ),
    hypotheses=list_of(
        object_of(
            text=text,
            tokens=list_of(text),
            ids=list_of(count),
            score=number,
            rank=number,
            complete=flag,
            nodes=list_of(count),
        )
    ),
)

_CHANGES = object_of(
    without_heads=list_of(object_of(kind=one_of("encoder", "decoder", "cross"), layer=count, head=count)),
    masked_words=list_of(count),
    before=object_of(text=text, score=number),
    steps=list_of(object_of(token=text, id=count, before=probability, after=probability)),
)

_PIECES = object_of(number=count, sources=list_of(text), targets=maybe(list_of(text)))


def _answer(sizes: Sizes) -> Check:
    return object_of(place=maybe(index(sizes["S"])), top=list_of(object_of(token=text, probability=probability)))


def _positions(sizes: Sizes) -> Check:
    def check(value: object, where: str) -> None:
        rows = value.get("rows") if isinstance(value, dict) else None
        count(rows, f"{where}.rows")
        assert isinstance(rows, int) and isinstance(value, dict)
        width = sizes["K"] if value.get("kind") == "rotary" else sizes["D"]
        bias = packed(sizes["H"], rows, rows)
        object_of(
            kind=text,
            rows=count,
            code=maybe(packed(rows, width)),
            target_code=maybe(packed(rows, width)),
            similarity=maybe(packed(rows, rows)),
            bias=maybe(object_of(encoder=bias, decoder=bias)),
        )(value, where)

    return check


def _lens(sizes: Sizes, *, with_encoder: bool) -> Check:
    likely = object_of(token=text, id=count, probability=probability)
    steps = list_of(object_of(probability=probability, rank=count, entropy=number, top=list_of(likely)), sizes["T"])
    encoder = list_of(
        object_of(layer=count, text=text, tokens=list_of(text), ids=list_of(count), steps=steps), sizes["E"] + 1
    )
    return object_of(
        decoder=list_of(object_of(layer=count, steps=steps), sizes["L"] + 1),
        encoder=encoder if with_encoder else just(None),
    )


def _causes(trace: Mapping[str, Mapping[str, object]], sizes: Sizes) -> Check:
    words = trace["source"]["words"]
    return object_of(hidden=packed(sizes["T"], len(words) if isinstance(words, list) else 0))


def _halting(sizes: Sizes) -> Check:
    return object_of(encoder=packed(sizes["E"], sizes["S"]), decoder=packed(sizes["L"], sizes["T"]))


def _walk(sizes: Sizes, residual: str, *, reads: bool, writes: bool, family: str) -> Check:
    def vector(width: str, *shape: str) -> Check:
        places = [sizes[letter] for letter in shape]
        return object_of(first=packed(*places, min(sizes["n"], sizes[width])), norm=packed(*places))

    def attention(queries: str, keys: str) -> Check:
        query, key = vector("K", "H", queries), vector("K", "H", keys)
        return object_of(q=query, k=key, v=key, heads=query, out=vector("D", queries), scale=number, bias=flag)

    def layer(tokens: str, attentions: Sequence[tuple[str, str]]) -> Check:
        inner, wide = vector("F", tokens), vector("D", tokens)
        parts: dict[str, Check] = {name: attention(tokens, keys) for name, keys in attentions}
        parts["feed_forward"] = object_of(inner=inner, gate=maybe(inner), activated=inner, out=wide)
        for name in list(parts):
            parts |= {f"{name}.added": just(None) if residual == "none" else wide, f"{name}.norm": wide}
        return table_of({"input": wide, **parts})

    def stack(tokens: str, depth: int, attentions: Sequence[tuple[str, str]]) -> Check:
        one = vector("D", tokens)
        embedded = just(None) if family == "vit" else one
        return object_of(
            start=object_of(embedding=embedded, scaled=embedded, position=maybe(one), input=one, norm=maybe(one)),
            layers=list_of(layer(tokens, attentions), depth),
            end=object_of(
                norm=one if residual == "pre" else just(None), mean=one if family == "universal" else just(None)
            ),
            steps=list_of(text),
        )

    cross = [("cross_attention", "S")] if reads and writes else []
    return object_of(
        numbers=count,
        encoder=stack("S", sizes["E"], [("attention", "S")]) if reads else just(None),
        decoder=stack("T", sizes["L"], [("attention", "T"), *cross]) if writes else just(None),
    )
