"""What the loop calls back: logging, validating, saving, and what a run leaves when it is done."""

import contextlib
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from heedful.models.folder import Model, save_model
from heedful.training.auxiliary import auxiliary_heads
from heedful.training.checkpoint import State, list_checkpoints, load_checkpoint, prune, save_checkpoint
from heedful.training.describe import describe_model
from heedful.training.distributed import World, agree, barrier, sum_over_ranks
from heedful.training.loop import Progress, Training
from heedful.training.parts import thaw
from heedful.training.record import RunRecord
from heedful.training.settings import Settings
from heedful.training.signals import Abandoned, StopRequests
from heedful.training.tasks.table import metric_of
from heedful.training.tasks.task import Lesson, Validator
from heedful.training.tensors import generator_tensors, load_model_tensors, model_tensors, optimiser_tensors
from heedful.training.validation import Validation

Emit = Callable[..., None]  # (kind of event, **values)


@dataclass
class Session:
    """Everything that the callbacks of `fit` need. Rank 0 judges, writes and speaks; the others only take part."""

    folder: Path
    record: RunRecord
    world: World
    model: Model
    lesson: Lesson
    validator: Validator | None  # of rank 0
    ema: dict[str, Tensor]  # the running average of the weights, empty when there is none
    emit: Emit
    requests: StopRequests
    training: Training = field(init=False)  # set last: the loop calls the session, and the session reads the loop
    last_said: list[str] = field(default_factory=list)

    @property
    def settings(self) -> Settings:
        return self.record.settings

    @property
    def metric(self) -> str:
        """What "better" means."""
        return metric_of(self.settings)

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
                score = result.score(self.metric)
        best = state.scores.get(str(state.best_step))
        is_best = score is not None and (best is None or score > best)
        if judged is not None and is_best:
            self._save_model("best", judged, state, result, weights=f"the best on validation, at step {state.step:,}")
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
        before = self.last_said or itertools.repeat(None)
        samples = [
            {"source": said.source, "reference": said.reference, "hypothesis": said.hypothesis, "before": last}
            for said, last in zip(result.samples, before, strict=False)
        ]
        self.last_said = [said.hypothesis for said in result.samples]
        plain = {name: result.metrics[name] for name in ("bleu", "chrf") if name in result.metrics}
        self.emit(
            "validation",
            step=state.step,
            loss=result.loss,
            perplexity=result.metrics.get("perplexity"),
            **plain,
            metrics={name: value for name, value in result.metrics.items() if name not in ("perplexity", *plain)},
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

    def model_to_judge(self) -> Model | None:
        """The model as validation sees it, on rank 0: itself, or a copy with averaged or gathered weights, and without
        what serves in training alone.
        """
        if self.settings.run.shard == "none" and not self.ema and auxiliary_heads(self.model) is None:
            return self.model if self.world.speaks else None
        tensors = self.ema or model_tensors(self.model)
        if not self.world.speaks:
            return None
        return self._like_model(tensors)

    def after_update(self, state: State) -> None:
        """Wake the parts whose turn has come; move the running average of the weights towards the newest ones."""
        thaw(self.training.optimiser, state.step, self.settings.optimiser.unfreeze_every)
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
        if str(state.step) not in state.scores:
            self.validate(state)  # the last weights are often the best, wherever a run ends
        tensors = model_tensors(self.model)
        if self.world.speaks:
            plain = self._like_model(tensors)
            self._save_model("last", plain, state, self._judge(plain), weights=f"those of step {state.step:,}")
            checkpoints = self._last_checkpoints()
            saved = [load_checkpoint(path).model for path in checkpoints]
            load_model_tensors(plain, average_of(saved or [tensors]))
            which = f"the mean of {len(checkpoints)} checkpoints, the last at" if len(checkpoints) > 1 else "those of"
            self._save_model("average", plain, state, self._judge(plain), weights=f"{which} step {state.step:,}")
        barrier(self.world)
        return {name: str(self.folder / name) for name in ("best", "last", "average") if (self.folder / name).exists()}

    def _like_model(self, tensors: dict[str, Tensor]) -> Model:
        """A model like the one in training, on one device, with these numbers."""
        kind: type[Any] = type(self.model)
        model: Model = kind(self.model.config).to(self.world.device, next(iter(tensors.values())).dtype)
        load_model_tensors(model, tensors)
        return model

    def _judge(self, model: Model) -> Validation:
        assert self.validator is not None
        return self.validator(model)

    def _save_model(self, name: str, model: Model, state: State, result: Validation, *, weights: str) -> None:
        card = describe_model(self.record, self.lesson, model, state, result, weights=weights)
        save_model(self.folder / name, model, self.lesson.tokenizers, card=card)

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
