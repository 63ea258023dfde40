"""Engines: requests in, hypotheses out.

    base                       the protocol that all engines follow
    auto                       choose an engine; CTranslate2 with torch for what it cannot do
    torch_engine               every model in PyTorch
    ctranslate2_engine         encoder-decoder models in CTranslate2
    ctranslate2_generator      decoder-only models in CTranslate2
    ctranslate2_support        what CTranslate2 cannot do, and why
    ctranslate2_tuning         the fastest threads and batches of this machine, measured once
    lexical_shortlist          learn which target words fit a source from a model's own output

Only `torch_engine` imports torch.
"""
