"""One sitting of a run: the model, optimiser and data put together, and what the loop calls back."""

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.data.batch import Batch
from heedful.data.loader import Loader, LoaderState
from heedful.data.pairs import Pairs
from heedful.models.folder import save_model
from heedful.models.seq2seq import Seq2Seq
from heedful.training.checkpoint import Checkpoint, State, list_checkpoints, load_checkpoint, prune, save_checkpoint
from heedful.training.distributed import World, agree, barrier, sum_over_ranks, wrap
from heedful.training.loop import ModelWithObjective, Progress, Training
from heedful.training.objectives import make_objective
from heedful.training.optimiser import make_optimiser, peak_rate
from heedful.training.prepare import Prepared
from heedful.training.schedule import learning_rate
from heedful.training.settings import Settings
from heedful.training.signals import Abandoned, StopRequests
from heedful.training.tensors import (
    generator_tensors,
    load_generator_tensors,
    load_model_tensors,
    load_optimiser_tensors,
    model_tensors,
    optimiser_tensors,
)
from heedful.training.validation import Validation, Validator

Emit = Callable[..., None]  # (kind of event, **values)


@dataclass
class Session:
    """Everything that the callbacks of `fit` need. Rank 0 judges, writes and speaks; the others only take part."""

    folder: Path
    settings: Settings
    world: World
    model: Seq2Seq
    prepared: Prepared
    training: Training
    validator: Validator | None  # of rank 0
    ema: dict[str, Tensor]
    emit: Emit
    requests: StopRequests
    last_hypotheses: list[str]

    @property
    def checkpoints(self) -> Path:
        return self.folder / "checkpoints"

    def log(self, state: State, progress: Progress) -> None:
        loss = sum_over_ranks(self.world, progress.loss)[0]
        speed = progress.tokens / progress.seconds
        steps_left = self.settings.run.steps - state.step
        seconds_left = steps_left * state.seconds / max(1, state.step)
        if self.settings.run.minutes is not None:
            seconds_left = min(seconds_left, max(0.0, self.settings.run.minutes * 60 - state.seconds))
        self.emit(
            "step",
            step=state.step,
            steps=self.settings.run.steps,
            loss=loss / progress.tokens,
            tokens_per_second=speed,
            lr=progress.rate,
            grad_norm=progress.grad_norm,
            epoch=state.loader.epoch,
            seconds=state.seconds,
            seconds_left=seconds_left,
            tokens=state.tokens,
        )

    def validate(self, state: State) -> bool:
        """Score the model; keep the best one as a model folder; count how long none was better. False: abandoned."""
        started = time.perf_counter()
        judged, score = self.model_to_judge(), None
        if judged is not None and self.validator is not None:
            with contextlib.suppress(Abandoned), self.requests.abandoning():
                result = self.validator(judged)
                score = result.score(self.settings.run.metric)
        best = state.scores.get(str(state.best_step))
        is_best = score is not None and (best is None or score > best)
        if judged is not None and is_best:
            save_model(self.folder / "best", judged, self.prepared.tokenizers)
        score = agree(self.world, score)
        if score is None:
            return False
        is_best = best is None or score > best
        state.waited = 0 if is_best else state.waited + 1
        state.scores[str(state.step)] = score
        if judged is not None:
            self._tell(state, result, is_best, time.perf_counter() - started)
        return True

    def _tell(self, state: State, result: Validation, is_best: bool, seconds: float) -> None:
        assert self.validator is not None
        samples = [
            {"source": example.source, "reference": example.target, "hypothesis": said, "before": before}
            for example, said, before in zip(
                self.validator.chosen[:3],
                result.hypotheses,
                self.last_hypotheses[:3] or itertools.repeat(None),
                strict=False,
            )
        ]
        self.last_hypotheses = result.hypotheses
        self.emit(
            "validation",
            step=state.step,
            loss=result.loss,
            perplexity=result.perplexity,
            bleu=result.bleu,
            chrf=result.chrf,
            score=state.scores[str(state.step)],
            best=is_best,
            best_score=state.scores[str(state.best_step)],
            best_step=state.best_step,
            waited=state.waited,
            patience=self.settings.run.patience,
            seconds=seconds,
            samples=samples,
        )

    def save(self, state: State) -> None:
        """A checkpoint; rank 0 writes, after all ranks have given their parts."""
        started = time.perf_counter()
        model, optimiser = model_tensors(self.model), optimiser_tensors(self.model, self.training.optimiser)
        if self.world.speaks:
            folder = save_checkpoint(
                self.checkpoints,
                state,
                model=model,
                optimiser=optimiser,
                generators=generator_tensors(),
                ema=self.ema,
            )
            best = sorted(state.scores, key=lambda step: -state.scores[step])[: self.settings.run.keep_best]
            keep = max(self.settings.run.keep_last, self.settings.run.average)
            prune(self.checkpoints, keep_last=keep, best=[int(step) for step in best])
            size = sum(path.stat().st_size for path in folder.iterdir())
            self.emit("saved", step=state.step, folder=str(folder), bytes=size, seconds=time.perf_counter() - started)
        barrier(self.world)

    def model_to_judge(self) -> Seq2Seq | None:
        """The model as validation sees it, on rank 0: itself, or a copy with averaged or gathered weights."""
        if self.settings.run.shard == "none" and not self.ema:
            return self.model if self.world.speaks else None
        tensors = self.ema or model_tensors(self.model)
        if not self.world.speaks:
            return None
        judged = Seq2Seq(self.model.config).to(self.world.device, next(iter(tensors.values())).dtype)
        load_model_tensors(judged, tensors)
        return judged

    def after_update(self, state: State) -> None:
        """Move the running average of the weights towards the newest ones."""
        decay = self.settings.run.ema
        if decay > 0.0:
            with torch.no_grad():
                for name, tensor in model_tensors(self.model).items():
                    if name not in self.ema:
                        self.ema[name] = tensor.clone()
                    else:
                        # At first the average is young: it must not remember the start for a thousand steps.
                        self.ema[name].lerp_(tensor, 1.0 - min(decay, (state.step + 1) / (state.step + 10)))

    def finish(self, state: State) -> dict[str, str]:
        """The model folders that a run leaves: last/, average/ and, from validation, best/."""
        tensors = model_tensors(self.model)
        folders = {}
        if self.world.speaks:
            plain = Seq2Seq(self.model.config).to(next(iter(tensors.values())).dtype)
            load_model_tensors(plain, tensors)
            folders["last"] = str(save_model(self.folder / "last", plain, self.prepared.tokenizers))
            averaged = average_of([load_checkpoint(path).model for path in self._last_checkpoints()])
            load_model_tensors(plain, averaged)
            folders["average"] = str(save_model(self.folder / "average", plain, self.prepared.tokenizers))
            if (self.folder / "best").exists():
                folders["best"] = str(self.folder / "best")
        barrier(self.world)
        return folders

    def _last_checkpoints(self) -> list[Path]:
        return list_checkpoints(self.checkpoints)[-self.settings.run.average :]


def average_of(models: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several models, number by number, summed in double precision."""
    return {
        name: (sum((model[name].double() for model in models), torch.tensor(0.0).double()) / len(models)).to(
            tensor.dtype
        )
        for name, tensor in models[0].items()
    }


def open_session(
    folder: Path,
    settings: Settings,
    world: World,
    prepared: Prepared,
    *,
    emit: Emit,
    checkpoint: Checkpoint | None,
    start_weights: dict[str, Tensor] | None,
    requests: StopRequests,
) -> tuple[Session, State]:
    """Build the run, at its beginning or as a checkpoint left it."""
    run = settings.run
    torch.manual_seed(run.seed)  # the same first weights on every rank
    config = settings.model_config(
        source_vocab_size=prepared.tokenizers.source.vocab_size,
        target_vocab_size=prepared.tokenizers.target.vocab_size,
    )
    model = Seq2Seq(config).to(world.device, torch.float64 if run.precision == "float64" else torch.float32)
    if checkpoint is not None:
        load_model_tensors(model, checkpoint.model)
    elif start_weights is not None:
        load_model_tensors(model, start_weights)
    objective = make_objective(
        settings.objective, label_smoothing=settings.loss.label_smoothing, r_drop=settings.loss.r_drop
    )
    module = wrap(ModelWithObjective(model, objective).train(), world, run.shard)
    optimiser = make_optimiser(model, settings.optimiser)
    state = State(LoaderState(epoch=0, position=0, seed=run.seed)) if checkpoint is None else replace(checkpoint.state)
    if checkpoint is not None:
        load_optimiser_tensors(model, optimiser, checkpoint.optimiser)
        load_generator_tensors(checkpoint.generators)
    peak = peak_rate(settings.optimiser, d_model=config.d_model, warmup_steps=settings.schedule.warmup_steps)
    session = Session(
        folder=folder,
        settings=settings,
        world=world,
        model=model,
        prepared=prepared,
        training=None,  # type: ignore[arg-type]  # set below: the loop calls the session, and the session reads the loop
        validator=_validator(prepared, settings) if world.speaks else None,
        ema={} if checkpoint is None else {k: t.to(world.device) for k, t in checkpoint.ema.items()},
        emit=emit,
        requests=requests,
        last_hypotheses=[],
    )
    session.training = Training(
        settings=run,
        world=world,
        module=module,
        optimiser=optimiser,
        max_grad_norm=settings.optimiser.max_grad_norm,
        rate_at=lambda step: learning_rate(step, peak=peak, steps=run.steps, schedule=settings.schedule),
        batches=make_loader(prepared, settings, world, state.loader),
        autocast=lambda: autocast(world.device, run.precision),
        after_update=session.after_update,
        log=session.log,
        validate=session.validate,
        save=session.save,
        asked_to_stop=requests.reason,
        warn=lambda text: emit("warning", text=text),
        accumulate=run.accumulate,
    )
    return session, state


def make_loader(prepared: Prepared, settings: Settings, world: World, state: LoaderState) -> Loader[Batch]:
    pairs = Pairs(prepared.train, tokenizers=prepared.tokenizers, pin_memory=world.device.type == "cuda")
    return Loader(
        pairs,
        batch_tokens=settings.data.batch_tokens,
        seed=settings.run.seed,
        state=state,
        max_len=settings.data.max_len,
        weights=settings.data.weights or None,
        rank=world.rank,
        n_ranks=world.size,
        n_workers=settings.data.workers,
    )


def _validator(prepared: Prepared, settings: Settings) -> Validator:
    return Validator(
        prepared.valid,
        prepared.tokenizers,
        batch_tokens=settings.data.batch_tokens,
        max_len=settings.data.max_len,
        sentences=settings.run.sentences,
    )


def autocast(device: torch.device, precision: str) -> Any:
    """bfloat16 where it is wanted, or where it is chosen for itself: on GPUs that have it."""
    wanted = precision == "bfloat16" or (
        precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
    )
    return torch.autocast(device.type, torch.bfloat16) if wanted else contextlib.nullcontext()
