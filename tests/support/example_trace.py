"""A random trace in the format of docs/look.md that is consistent: rows sum to one, the future is masked."""

import base64

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Values = dict[str, object]
SOURCE = "▁A ▁young ▁dog ▁is ▁play ing ▁in ▁the ▁deep ▁snow ."
TARGET = "▁Ein ▁junger ▁Hund ▁spiel t ▁im ▁tief en ▁Schnee ."


def packed(values: Array, dtype: str) -> Values:
    kinds = {"u8": "u1", "u16": "<u2", "f16": "<f2", "f32": "<f4"}
    stored = np.rint(values * 65535) if dtype == "u16" else values
    data = base64.b64encode(np.ascontiguousarray(stored).astype(kinds[dtype]).tobytes()).decode("ascii")
    return {"dtype": dtype, "shape": list(values.shape), "data": data}


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def spans(tokens: list[str]) -> list[list[int]]:
    """Return the spans of words; a word begins at a space or a punctuation mark."""
    starts = [i for i, token in enumerate(tokens) if i == 0 or token.startswith(("▁", "<"))]
    return [[a, b] for a, b in zip(starts, [*starts[1:], len(tokens)], strict=True)]


class Maker:
    """The sizes and the random numbers of one trace."""

    def __init__(self, *, source: list[str], target: list[str], n_layers: int, n_heads: int, seed: int) -> None:
        self.source, self.target = [*source, "</s>"], [*target, "</s>"]
        self.inputs = ["<s>", *target]
        self.n_layers, self.n_heads = n_layers, n_heads
        self.d_model, self.d_ff, self.n = n_heads * 8, n_heads * 32, 8
        self.random = np.random.default_rng(seed)

    def attention(self, n_rows: int, n_columns: int, *, causal: bool = False, diagonal: bool = False) -> Values:
        shape = (self.n_layers, self.n_heads, n_rows, n_columns)
        scores = self.random.normal(size=shape) * 5
        mask = np.ones((1, 1, n_rows, n_columns))
        if causal:
            mask = np.tril(mask)
        places = np.linspace(0, n_columns - 1, n_rows)[:, None] - np.arange(n_columns)
        pull = self.random.uniform(0, 4, size=(self.n_layers, self.n_heads, 1, 1)) if diagonal else 1.0
        scores = scores - np.abs(places) * pull
        weights = softmax(np.where(mask > 0, scores / np.sqrt(8), -np.inf))
        size = (self.n_layers, self.n_heads)
        with np.errstate(divide="ignore", invalid="ignore"):
            bits = -np.nansum(np.where(weights > 0, weights * np.log2(weights), 0), axis=-1).mean(axis=-1)
        return {
            "weights": packed(weights, "u16"),
            "scores": packed(scores, "f32"),
            "mask": packed(mask, "u8"),
            "entropy": bits.tolist(),
            "locality": self.random.uniform(size=size).tolist(),
            "alignment": weights.max(axis=-1).mean(axis=-1).tolist() if diagonal else None,
        }

    def vector(self, *shape: int) -> Values:
        return {
            "first": packed(self.random.normal(size=(*shape, self.n)), "f32"),
            "norm": packed(self.random.uniform(3, 9, size=shape), "f32"),
        }

    def start(self, n_tokens: int) -> Values:
        return {name: self.vector(n_tokens) for name in ("embedding", "scaled", "position", "input")} | {"norm": None}

    def layer(self, n_tokens: int, *, cross: bool) -> Values:
        def attention(n_keys: int) -> Values:
            heads = {name: self.vector(self.n_heads, n_tokens) for name in ("q", "heads")}
            keys = {name: self.vector(self.n_heads, n_keys) for name in ("k", "v")}
            return {**heads, **keys, "out": self.vector(n_tokens), "scale": 8**-0.5, "bias": False}

        parts = ["attention", *(["cross_attention"] if cross else []), "feed_forward"]
        layer: Values = {"input": self.vector(n_tokens), "attention": attention(n_tokens)}
        if cross:
            layer["cross_attention"] = attention(len(self.source))
        layer["feed_forward"] = {name: self.vector(n_tokens) for name in ("inner", "activated", "out")} | {"gate": None}
        return layer | {f"{part}.{name}": self.vector(n_tokens) for part in parts for name in ("added", "norm")}

    def likely(self, token: str, number: int, n: int) -> list[Values]:
        shares = np.sort(softmax(self.random.normal(size=n + 3) * 2.5))[::-1]
        tokens = [token, *(f"▁other{i}" for i in range(1, n))]
        return [
            {"token": tokens[i], "id": number if i == 0 else 900 + i, "probability": float(shares[i]), "logit": 9.0 - i}
            for i in range(n)
        ]

    def top(self, step: Values, n: int) -> list[Values]:
        """Return the first n predictions without logits, as a logit lens has them."""
        found = step["top"]
        assert isinstance(found, list)
        return [{key: one[key] for key in ("token", "id", "probability")} for one in found[:n]]

    def steps(self, n: int = 10) -> list[Values]:
        made = []
        for t, token in enumerate(self.target):
            top = self.likely(token, 10 + t, n)
            probability = top[0]["probability"]
            assert isinstance(probability, float)
            facts = {"token": token, "id": 10 + t, "probability": probability, "rank": 0, "logit": 9.0}
            made.append(facts | {"log_sum": 9.0 - float(np.log(probability)), "entropy": 1.5, "top": top})
        return made

    def lens(self, *, texts: bool) -> list[Values]:
        layers = []
        for layer in range(self.n_layers + 1):
            steps: list[Values] = [
                {key: step[key] for key in ("probability", "rank", "entropy")} | {"top": self.top(step, 3)}
                for step in self.steps()
            ]
            more = {"text": f"text of layer {layer}", "tokens": ["▁text"], "ids": [5]} if texts else {}
            layers.append({"layer": layer, "steps": steps, **more})
        return layers

    def beam(self, width: int = 3) -> Values:
        """Return a beam: the best hypothesis continues at every step; others end at once or one step later."""
        events: list[Values] = []
        best, other, score = 0, None, 0.0
        path = []

        def add(parent: int, step: int, token: str, number: int, points: float, fate: str) -> int:
            node = len(events) + 1
            forced = {"text": "A forced branch.", "tokens": ["▁A"], "ids": [number], "score": -4.5}
            events.append({
                "node": node, "parent": parent, "step": step, "token": token, "id": number, "score": points,
                "normalized_score": points / step, "fate": fate, "continuation": forced if fate == "pruned" else None,
            })  # fmt: skip
            return node

        for t, token in enumerate(self.target):
            score -= 0.2
            previous, is_last = best, t == len(self.target) - 1
            best = add(previous, t + 1, token, 10 + t, score, "finished" if is_last else "kept")
            path.append(best)
            if other is not None:
                add(other, t + 1, "▁late", 700 + t, score - 3, "pruned")
            other = add(previous, t + 1, f"▁alt{t}", 800 + t, score - 1, "kept") if not is_last else None
            add(previous, t + 1, f"▁bad{t}", 850 + t, score - 2, "pruned")
        hypothesis = {"text": self.text(self.target), "tokens": self.target, "ids": list(range(10, 10 + len(path)))}
        found = [hypothesis | {"score": score, "normalized_score": score / len(path), "complete": True, "nodes": path}]
        return {
            "width": width,
            "length_penalty": 1.0,
            "limit": 60,
            "n_opening": 0,
            "events": events,
            "hypotheses": found,
        }

    def text(self, tokens: list[str]) -> str:
        return "".join(token for token in tokens if not token.startswith("<")).replace("▁", " ").strip()

    def positions(self) -> Values:
        n_rows = max(20, len(self.source), len(self.target))
        code = self.random.uniform(-1, 1, size=(n_rows, self.d_model))
        unit = code / np.linalg.norm(code, axis=1, keepdims=True)
        packs = {"code": packed(code, "f16"), "similarity": packed(unit @ unit.T, "f16")}
        return {"kind": "learned", "rows": n_rows, **packs, "target_code": None, "bias": None}

    def model(self) -> Values:
        config = {
            "d_model": self.d_model, "n_layers": self.n_layers, "n_heads": self.n_heads, "d_ff": self.d_ff,
            "residual": "post", "norm": "layer", "activation": "relu", "positions": "learned", "join": "last",
            "source_vocab_size": 8000, "target_vocab_size": 8000, "tied": "all",
        }  # fmt: skip
        sizes = {"n_encoder_layers": self.n_layers, "n_decoder_layers": self.n_layers, "n_heads": self.n_heads}
        widths = {"n_kv_heads": self.n_heads, "d_model": self.d_model, "d_head": 8, "d_ff": self.d_ff}
        scales = {"embedding_scale": self.d_model**0.5, "attention_scale": 8**-0.5, "output_scale": 1.0, "score": "dot"}
        kinds = {"residual": "post", "norm": "layer", "activation": "relu", "vocab_size": 8000}
        return (
            {"name": "fixture", "family": "seq2seq", "n_parameters": 1234567, "config": config}
            | sizes
            | widths
            | scales
            | kinds
        )

    def causes(self) -> Values:
        """Return effects of occlusion: large for the word at a token's own position, slightly negative for others."""
        words = len(spans(self.source))
        hidden = np.full((len(self.target), words), -0.25)
        hidden[np.arange(len(self.target)), np.arange(len(self.target)) % words] = 2.0
        return {"hidden": packed(hidden, "f32")}

    def walk(self) -> Values:
        n_source, n_target = len(self.source), len(self.target)
        parts = ("attention", "cross_attention", "feed_forward")
        order = [name for part in parts for name in (part, f"{part}.added", f"{part}.norm")]
        own = [name for name in order if not name.startswith("cross")]

        def stack(n_tokens: int, steps: list[str], *, cross: bool) -> Values:
            layers = [self.layer(n_tokens, cross=cross) for _ in range(self.n_layers)]
            end = {"norm": None, "mean": None}
            return {"start": self.start(n_tokens), "layers": layers, "end": end, "steps": steps}

        encoder, decoder = stack(n_source, own, cross=False), stack(n_target, order, cross=True)
        return {"numbers": self.n, "encoder": encoder, "decoder": decoder}

    def texts(self) -> Values:
        numbers = list(range(10, 10 + len(self.target)))
        source = {"text": self.text(self.source), "tokens": self.source, "ids": list(range(len(self.source)))}
        target = {"text": self.text(self.target), "kind": "own", "tokens": self.target, "ids": numbers}
        inputs = {"inputs": self.inputs, "input_ids": [2, *numbers[:-1]], "input_words": spans(self.inputs)}
        return {
            "source": source | {"words": spans(self.source), "masked": []},
            "target": target | {"words": spans(self.target), "n_forced": 0} | inputs,
            "translation": {"text": target["text"], "score": -2.2, "normalized_score": -0.2, "complete": True},
        }


def make_trace(
    source: str = SOURCE, target: str = TARGET, *, n_layers: int = 3, n_heads: int = 4, seed: int = 1
) -> Values:
    make = Maker(source=source.split(), target=target.split(), n_layers=n_layers, n_heads=n_heads, seed=seed)
    n_source, n_target = len(make.source), len(make.target)
    return {
        "format": "heedful-trace",
        "version": 4,
        "model": make.model(),
        **make.texts(),
        "attention": {
            "encoder": make.attention(n_source, n_source),
            "decoder": make.attention(n_target, n_target, causal=True),
            "cross": make.attention(n_target, n_source, diagonal=True),
        },
        "alignment": [[min(t + 1, n_source - 2), t] for t in range(n_target - 1)],
        "steps": make.steps(),
        "beam": make.beam(),
        "positions": make.positions(),
        "lens": {"decoder": make.lens(texts=False), "encoder": make.lens(texts=True)},
        "causes": make.causes(),
        "walk": make.walk(),
        **dict.fromkeys(("halting", "changes", "answer", "image", "pieces")),
    }


def weights_of(trace: Values, kind: str) -> Array:
    """Return the attention weights of a trace, (L, H, rows, columns)."""
    attention = trace["attention"]
    assert isinstance(attention, dict)
    pack = attention[kind]["weights"]
    return np.frombuffer(base64.b64decode(pack["data"]), "<u2").reshape(pack["shape"]) / 65535
