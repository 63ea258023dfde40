"""Searches for the most probable texts, independent of any model: tokens in, logits out is all they see.

settings, request          what a user sets; what a search gets and returns
callback                   look into a running search
step                       the protocol of a model's decoding step
hypotheses                 the live hypotheses of a batch, and the log-probabilities of their next tokens
logits_processors          tokens that are ruled out or forced
sampling, beam_search      one step of greedy search and sampling; one step of beam search
constrained_beam_search    words that must occur
parallel_decoding          greedy search that checks several guessed tokens in one pass of the model
continuous_batching        the loop around them: finished requests leave the batch, and others take their slots
"""
