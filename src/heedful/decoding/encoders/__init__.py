"""Texts or images in; hidden words, labels or vectors out.

    fill, classify, embed   the three uses, a class for each
    rows, images            what a model reads: ids between their marks, pixels

There is nothing to search: an input is read once.
"""
