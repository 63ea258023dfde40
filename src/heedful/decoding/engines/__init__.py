"""Requests in, hypotheses out.

    engine          what every engine does
    torch_engine    the reference, for every model
    ct2_engine      CTranslate2, for models that map onto it
    ct2_limits      what it does not do as torch does
    ct2_speed       how it is fastest on this machine
    own_shortlist   the few words that it has to look at for a text, learned from what a model says
    choose          which of them runs a model

For models that go on from a prompt:

    writer          what such an engine does
    torch_writer    the reference
    ct2_writer      CTranslate2
    choose_writer   which of them runs a model, and which a request

Whoever gets CTranslate2 imports no torch.
"""
