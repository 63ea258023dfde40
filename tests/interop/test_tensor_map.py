"""Tensor maps work in both directions, and name what does not fit; config.json is read by name and type."""

import pytest
import torch

from deterministic import numbers
from heedful.errors import UserError
from heedful.interop.huggingface.checkpoint import to_common_dtype
from heedful.interop.huggingface.config_files import HFConfig
from heedful.interop.huggingface.tensor_map import TensorMap, read_tensors, write_tensors

ROWS = {
    "plain": TensorMap("a", "x"),
    "transposed": TensorMap("a", "x", transposed=True),
    "joined": TensorMap("a", ("x", "y", "z")),
    "joined along the other axis, transposed": TensorMap("a", ("x", "y", "z"), axis=1, transposed=True),
    "in another order": TensorMap("a", "x", axis=1, order=(0, 2, 4, 1, 3, 5)),
    "rows that nobody reads": TensorMap("a", "x", skip_rows=2),
    "wrapped": TensorMap("a", "x", unsqueeze=True),
    "a convolution of one point": TensorMap("a", "x", conv1x1=True),
    "with other names": TensorMap("a", "x", aliases=("b", "c")),
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
def test_reading_undoes_writing(row: TensorMap) -> None:
    ours = {name: numbers(4, 6, name=name) for name in row.names}
    theirs = write_tensors([row], ours)
    assert set(theirs) == {"a"}
    back = read_tensors([row], theirs)
    assert set(back) == set(ours)
    assert all(torch.equal(back[name], tensor) and back[name].is_contiguous() for name, tensor in ours.items())


def test_what_each_field_means() -> None:
    x, y = numbers(2, 3, name="x"), numbers(2, 3, name="y")
    assert torch.equal(write_tensors([TensorMap("a", ("x", "y"))], {"x": x, "y": y})["a"], torch.cat([x, y]))
    assert torch.equal(write_tensors([TensorMap("a", "x", transposed=True)], {"x": x})["a"], x.t())
    assert torch.equal(write_tensors([TensorMap("a", "x", axis=1, order=(2, 0, 1))], {"x": x})["a"], x[:, [2, 0, 1]])
    skipped = write_tensors([TensorMap("a", "x", skip_rows=2)], {"x": x})["a"]
    assert not skipped[:2].any() and torch.equal(skipped[2:], x)
    assert write_tensors([TensorMap("a", "x", unsqueeze=True)], {"x": x})["a"].shape == (1, 2, 3)


def test_tied_matrices_under_several_names_must_be_equal() -> None:
    row, x = TensorMap("a", "x", aliases=("b",)), numbers(2, 3)
    for found in ({"a": x}, {"b": x}, {"a": x, "b": x.clone()}):
        assert torch.equal(read_tensors([row], found)["x"], x)
    with pytest.raises(UserError, match="'a' and 'b' must be equal"):
        read_tensors([row], {"a": x, "b": x + 1}, where="file")


def test_a_tensor_with_default_zeros_may_be_missing() -> None:
    assert torch.equal(read_tensors([TensorMap("a", "x", default_zeros=(3,))], {})["x"], torch.zeros(3))


def test_missing_surplus_and_misshapen_tensors_are_named() -> None:
    x = numbers(2, 3)
    with pytest.raises(UserError, match=r"file: .*missing 1 \(a\); unexpected 1 \(other\)"):
        read_tensors([TensorMap("a", "x")], {"other": x}, where="file")
    with pytest.raises(UserError, match=r"file: does not fit its settings: unexpected 1 \(other\)"):
        read_tensors([TensorMap("a", "x")], {"a": x, "other": x}, where="file")
    with pytest.raises(UserError, match=r"'a' has the shape \(2, 3\)"):
        read_tensors([TensorMap("a", ("x", "y", "z"))], {"a": x}, where="file")
    with pytest.raises(UserError, match=r"'a' has the shape"):
        read_tensors([TensorMap("a", "x", axis=1, order=(0, 1, 2, 3))], {"a": x}, where="file")
    with pytest.raises(AssertionError, match="y"):
        write_tensors([TensorMap("a", "x")], {"x": x, "y": x})


def test_all_tensors_get_one_dtype() -> None:
    half, single = torch.ones(2, dtype=torch.float16), torch.ones(2)
    found = to_common_dtype({"a": half, "b": single, "c": torch.ones(2, dtype=torch.bfloat16)}, where="file")
    assert {tensor.dtype for tensor in found.values()} == {torch.float32}
    assert to_common_dtype({"a": half}, where="file")["a"].dtype == torch.float16
    with pytest.raises(UserError, match=r"'a' .*not finite"):
        to_common_dtype({"a": torch.tensor([1.0, torch.nan])}, where="file")
    with pytest.raises(UserError, match="int64"):
        to_common_dtype({"a": torch.ones(2, dtype=torch.int64)}, where="file")


def test_config_values_are_checked_by_type() -> None:
    values = HFConfig({"n": 3, "x": 0.5, "yes": True, "kind": "gelu_new", "none": None, "odd": 1}, where="config.json")
    assert (values.get_int("n"), values.get_float("x"), values.get_float("n"), values.get_bool("yes")) == (
        3,
        0.5,
        3.0,
        True,
    )
    assert values.get_choice("kind", {"gelu_new": "gelu_tanh"}) == "gelu_tanh"
    assert values.get_int("absent", 7) == values.get_int("none", 7) == 7
    assert values.get_optional_int("none") is None
    values.require("absent", False)
    with pytest.warns(UserWarning, match=r"config\.json: .*ignores them: odd$"):
        values.warn_unused()
    values.warn_unused(("odd",))
    for read, word in (
        (lambda: values.get_int("x"), "'x' must be a whole number, found 0.5"),
        (lambda: values.get_int("yes"), "'yes' must be a whole number"),
        (lambda: values.get_int("absent"), "'absent'"),
        (lambda: values.get_float("kind"), "'kind' must be a number"),
        (lambda: values.get_bool("n"), "'n' must be true or false"),
        (lambda: values.get_choice("kind", {"relu": "relu"}), "'kind' must be one of: relu, found 'gelu_new'"),
        (lambda: values.require("odd", 0), "'odd' is 1, but heedful's model supports only 0"),
        (lambda: values.require("yes", 1), "'yes' is True"),
        (lambda: values.require_equal("n", "odd"), "'n' is 3 and 'odd' is 1"),
    ):
        with pytest.raises(UserError, match=word):
            read()
