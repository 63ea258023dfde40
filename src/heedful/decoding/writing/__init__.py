"""Texts in, texts out.

    translator      the class that programs use; a `translation` is what it gives
    generator       the same for texts that go on from a prompt
    texts           texts as they come in: checked, in blocks
    long_text       texts that are too long: sentence by sentence (`sentences`), or the most important (`extract`)
    workers         several processes that translate, each a `translate_worker`
    greedily        with a model in memory: what validation needs

Nothing is cut in silence, and nothing loses its place.
"""
