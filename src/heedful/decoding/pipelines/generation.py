"""`heedful.pipeline("text-generation", model=…)`, called and answering as in Hugging Face's Transformers 4."""

from collections.abc import Iterable, Sequence
from typing import Any

from heedful.decoding.pipelines.options import search_options
from heedful.decoding.writing.generator import Generation, Generator
from heedful.errors import UserError

Answer = list[dict[str, str]]


class GenerationPipeline:
    """pipe("Once") -> [{"generated_text": "Once upon a time"}]; a list of prompts gives a list of such lists."""

    def __init__(self, generator: Generator) -> None:
        self.generator = generator

    def __call__(
        self,
        prompts: str | Iterable[str],
        *,
        max_length: int | None = None,
        return_full_text: bool | None = None,
        **options: Any,
    ) -> Answer | list[Answer]:
        """`max_length` counts the prompt, `max_new_tokens` does not. With `do_sample`, `seed` says what is drawn."""
        settings = search_options(options, beam=1, early_stopping=False, also=("max_length", "return_full_text"))
        many = [prompts] if isinstance(prompts, str) else list(prompts)
        if max_length is not None and "max_len" not in settings:
            found = [self.generator.search(one, **settings, max_len=self._room(one, max_length)) for one in many]
        else:
            found = self.generator.search(many, **settings)
        answers = [_dicts(best, whole=return_full_text is not False) for best in found]
        return answers[0] if isinstance(prompts, str) else answers

    def _room(self, prompt: str, max_length: int) -> int:
        n_prompt = len(self.generator.prompt_ids(prompt))
        room = max_length - n_prompt
        if room < 1:
            raise UserError(
                f"max_length = {max_length} leaves no room after a prompt of {n_prompt} tokens; "
                "raise it, or pass max_new_tokens"
            )
        return room


def _dicts(best: Sequence[Generation], *, whole: bool) -> Answer:
    return [{"generated_text": one.prompt + one.text if whole else one.text} for one in best]
