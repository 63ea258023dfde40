"""Tensors in, tensors out: the parts that every Transformer is built from. Knows no words, files or training.

One legend for all shapes in the package:

    B batch        S source length (keys)     T target length (queries)     D d_model
    H heads        K d_head                   F d_ff                        V vocabulary       N = B x beams

A mask is boolean and True means "may attend". Positions are whole numbers, (T,) or (B, T).
"""
