"""All bugs that `make mutants` plants. Each is a plausible mistake, and a test must fail because of it."""

from decoding_mutants import IN_DECODING
from encoder_mutants import IN_ENCODERS
from family_mutants import IN_FAMILIES
from gpt_mutants import IN_GPT
from look_mutants import IN_LOOKS
from model_mutants import IN_DATA, IN_MODELS
from nn_mutants import IN_NN
from serving_mutants import IN_PAGE, IN_SERVING
from training_mutants import IN_TRAINING

MUTANTS = [
    *IN_NN, *IN_MODELS, *IN_DATA, *IN_DECODING, *IN_GPT, *IN_FAMILIES, *IN_ENCODERS, *IN_LOOKS, *IN_TRAINING,
    *IN_SERVING, *IN_PAGE,
]  # fmt: skip
