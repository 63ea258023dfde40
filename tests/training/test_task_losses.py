"""The loss of each task equals its formula; micro-batches and ranks do not change it."""

from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from deterministic import fill
from heedful.data import IGNORE_INDEX, LabelBatch, LmBatch, Loader
from heedful.models.bert import Bert
from heedful.models.gpt import Gpt
from heedful.nn.embeddings import to_patches
from heedful.training.resolve_settings import resolve_settings
from heedful.training.tasks.base import Preparation, PreparedTask
from heedful.training.tasks.images import masked_patch_loss, order_loss
from heedful.training.tasks.language_modeling import next_token_loss
from heedful.training.tasks.masked_language_modeling import masked_token_loss
from heedful.training.tasks.registry import task_of
from heedful.training.train import files_of
from small_tasks import CASES, Case


def prepare_case(case: Case, folder: Path, *overrides: str) -> tuple[PreparedTask, int, int | None]:
    """Return the prepared task of a case, its batch size and its maximum length."""
    given = case.files(folder)
    contents = {"pairs" if kind == "source" else kind: paths for kind, paths in given.items() if kind != "target"}
    files = files_of(contents, given.get("target", ()), None, None, None)  # type: ignore[arg-type]
    settings = resolve_settings(files, case.family, None, [*case.overrides, "model.dropout=0.0", *overrides]).settings
    task = task_of(settings)
    task.prepare(Preparation(folder, files, settings, None, lambda text: None))
    prepared_task = task.assemble(task.reopen(folder, settings), settings)
    return prepared_task, settings.data.batch_tokens, settings.data.max_len


def gradients(model: nn.Module, loss: Tensor) -> dict[str, Tensor]:
    model.zero_grad()
    loss.backward()
    return {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize("name", CASES)
def test_parts_and_ranks_make_the_same_step(name: str, tmp_path: Path) -> None:
    """A step in 3 micro-batches or on 2 ranks has the same targets, loss and gradient."""
    prepared_task, batch_tokens, max_len = prepare_case(CASES[name], tmp_path)
    dataset, model = prepared_task.make_dataset(False), prepared_task.make_model().double().eval()

    def loader(rank: int, n_ranks: int) -> Loader:  # type: ignore[type-arg]
        sizes = {"batch_tokens": batch_tokens, "max_len": max_len}
        return Loader(dataset, seed=1, rank=rank, n_ranks=n_ranks, **sizes)  # type: ignore[arg-type]

    def as_doubles(batch: object) -> object:
        if hasattr(batch, "pixels"):
            return type(batch)(batch.pixels.double(), batch.labels, batch.indices)  # type: ignore[call-arg]
        return batch

    whole, halves = next(loader(0, 1)), [next(loader(rank, 2)) for rank in (0, 1)]
    expected = prepared_task.objective(model, as_doubles(whole), 0)
    gradient = gradients(model, expected)
    for parts in (whole.split(3), halves):
        assert sum(part.n_target_tokens for part in parts) == whole.n_target_tokens > 0
        assert sorted(i for part in parts for i in part.indices.tolist()) == sorted(whole.indices.tolist())
        total = sum(prepared_task.objective(model, as_doubles(part), 0) for part in parts)
        torch.testing.assert_close(total, expected, rtol=1e-10, atol=1e-10)
        for key, tensor in gradients(model, total).items():  # type: ignore[arg-type]
            torch.testing.assert_close(tensor, gradient[key], rtol=1e-8, atol=1e-10, msg=key)


def test_next_token_loss_is_cross_entropy(tmp_path: Path) -> None:
    prepared_task, *_ = prepare_case(CASES["next_token"], tmp_path)
    model = prepared_task.make_model().double().eval()
    assert isinstance(model, Gpt)
    ids = torch.arange(4, 16).reshape(2, 6)
    batch = LmBatch(ids[:, :-1], ids[:, 1:], torch.ones(2, 5, dtype=torch.bool), torch.zeros(2, 5).long(),
                     torch.arange(5).expand(2, 5), torch.arange(2))  # fmt: skip
    expected = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten(), reduction="sum")
    torch.testing.assert_close(next_token_loss(model, batch, isolate_documents=True), expected)


def test_packed_documents_are_isolated(tmp_path: Path) -> None:
    """The loss of a row of two documents is the sum of both alone, but not if they can attend to each other."""
    prepared_task, *_ = prepare_case(CASES["next_token"], tmp_path)
    model = fill(prepared_task.make_model().double().eval())
    ids = torch.tensor([[2, 7, 8, 9, 2, 11, 12, 13]])
    wanted = torch.tensor([[7, 8, 9, 3, 11, 12, 13, 3]])
    documents = torch.tensor([[0, 0, 0, 0, 1, 1, 1, 1]])
    packed = LmBatch(ids, wanted, torch.ones_like(ids, dtype=torch.bool), documents, documents, torch.arange(1))
    parts = [
        LmBatch(*(t[:, s] for t in (ids, wanted, packed.target_mask, documents * 0, documents)), torch.arange(1))
        for s in (slice(0, 4), slice(4, 8))
    ]
    alone = sum(next_token_loss(model, part, isolate_documents=True) for part in parts)
    torch.testing.assert_close(next_token_loss(model, packed, isolate_documents=True), alone)
    assert abs((next_token_loss(model, packed, isolate_documents=False) - alone).item()) > 1e-6


def test_only_masked_tokens_have_a_loss(tmp_path: Path) -> None:
    prepared_task, batch_tokens, max_len = prepare_case(CASES["masked_tokens"], tmp_path)
    model = prepared_task.make_model().double().eval()
    assert isinstance(model, Bert)
    batch = next(Loader(prepared_task.make_dataset(False), batch_tokens=batch_tokens, max_len=max_len, seed=3))
    assert isinstance(batch, LabelBatch)
    logits = model(batch.ids, batch.mask)
    expected = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), ignore_index=IGNORE_INDEX, reduction="sum")
    torch.testing.assert_close(masked_token_loss(model, batch), expected)
    share = batch.n_target_tokens / int(batch.mask.sum())
    assert 0.05 < share < 0.4


def test_masked_patch_and_order_losses_written_out(tmp_path: Path) -> None:
    prepared_task, *_ = prepare_case(CASES["masked_patches"], tmp_path / "a")
    batch = next(Loader(prepared_task.make_dataset(False), batch_tokens=64, seed=3))
    model = prepared_task.make_model().eval()
    hidden = batch.labels != IGNORE_INDEX  # type: ignore[attr-defined]
    assert hidden.sum(dim=1).tolist() == [2] * len(batch)  # half of the 4 patches
    painted = model(batch.pixels, masked=hidden)  # type: ignore[attr-defined]
    wrong = (painted - to_patches(batch.pixels, 4)).square().mean(dim=-1)[hidden].sum()  # type: ignore[attr-defined]
    torch.testing.assert_close(masked_patch_loss(model, batch), wrong)  # type: ignore[arg-type]
    prepared_task, *_ = prepare_case(CASES["shuffled_patches"], tmp_path / "b")
    batch = next(Loader(prepared_task.make_dataset(False), batch_tokens=64, seed=3))
    assert sorted(batch.labels[0].tolist()) == [0, 1, 2, 3]  # type: ignore[attr-defined]
    model = prepared_task.make_model().eval()
    logits = model.head(model.hidden_states(batch.pixels, order=batch.labels, with_positions=False))  # type: ignore[attr-defined]
    expected = F.cross_entropy(logits.flatten(0, 1), batch.labels.flatten(), reduction="sum")  # type: ignore[attr-defined]
    torch.testing.assert_close(order_loss(model, batch), expected)  # type: ignore[arg-type]


def test_the_split_of_a_file_is_the_first_nine_tenths(tmp_path: Path) -> None:
    """nanoGPT splits tiny Shakespeare in this way: by characters, the last tenth held out."""
    from heedful.data import read_text, split_documents

    path = tmp_path / "a.txt"
    text = "".join(f"line {i}\n\n" for i in range(57))
    path.write_text(text)
    training, valid, _ = split_documents([read_text(path, keep_empty=True)], "file", hold_out=3, share=0.1)
    parts = ["".join(example.source for example in part) for part in (*training, *valid)]
    assert parts == [text[: int(len(text) * 0.9)], text[int(len(text) * 0.9) :]]


def test_windows_begin_anywhere_and_predict_the_next_token(tmp_path: Path) -> None:
    prepared_task, *_ = prepare_case(CASES["next_token windows"], tmp_path)
    dataset = prepared_task.make_dataset(False)
    batch = dataset.batch(np.arange(8), np.arange(8), seed=5)
    assert isinstance(batch, LmBatch)
    assert torch.equal(batch.target_in[:, 1:], batch.target_out[:, :-1])
    again, other = dataset.batch(np.arange(8), np.arange(8), seed=5), dataset.batch(np.arange(8), np.arange(8), seed=6)
    assert isinstance(again, LmBatch) and isinstance(other, LmBatch)
    assert torch.equal(batch.target_in, again.target_in) and not torch.equal(batch.target_in, other.target_in)
