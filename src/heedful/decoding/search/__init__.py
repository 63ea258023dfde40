"""Which token comes next.

    settings, request       what is asked for, and what is found
    step                    what a search needs of a model
    board                   what is written so far
    prediction, filters     what a step says of the next token, and what of it is ruled out
    candidates              the best of it
    greedy, sample, beam    one step of each search; `required` words get into a beam, `events` are its diary
    loop                    the loop around them all: batches that are refilled as sentences end

A search sees tokens in and logits out, and no model: whatever can take a step can be searched.
"""
