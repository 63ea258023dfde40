"""The decoding steps of models: the newest token of each row in, the logits of its next token out.

    reference              through the model itself: every encoder-decoder
    fast_seq2seq           encoder-decoders with full attention
    fast_decoder_only      decoder-only models
    row_cache              the keys and values of the fast steps
    packed_linear          the linear layers of the fast steps
    ensemble               several models that generate one text

Fast steps give the same results as the model itself; tests compare them.
"""
