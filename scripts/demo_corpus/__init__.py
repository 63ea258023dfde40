"""The grammar that writes the demo corpus: English, French and Chinese sentences of daily life.

    make demo-corpus                                             write the tables that the package ships
    python -m scripts.demo_corpus --scale 3 --output build/demo  write three times as much text

A sentence begins as a meaning (`meaning.py`). The kinds of sentences (`sentences.py`, `modals.py`, `scenes.py`,
`comparisons.py`, `reasons.py`; `grammar.py` counts them) put words (`nouns.py`, `verbs.py`, `adjectives.py`,
`lexicon.py`, `set_phrases.py`) and people (`people.py`) together, so that they make sense (`choices.py`). Each language
renders the meaning (`english.py`, `french.py`, `chinese.py`). `ambiguity.py` finds the other meanings of a sentence.
`corpus.py` divides the sentences into splits, `probe.py` makes the split `probe`, and `tables.py` writes all.
"""
