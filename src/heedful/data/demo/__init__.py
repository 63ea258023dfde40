"""The built-in demo corpus: English, French and Chinese sentences of daily life, made by a grammar and a lexicon.

    corpus = demo_corpus("en", "fr")                 # train, valid, test, combinations: lists of Examples
    translations("Thank you.", "en", "fr")           # every translation that counts as right

A sentence is first a meaning (`meaning.py`), made of words (`nouns.py`, `verbs.py`, `adjectives.py`, `lexicon.py`,
`sayings.py`) by the kinds of sentences (`sentences.py`, `modals.py`, `scenes.py`, `comparisons.py`, `reasons.py`,
counted in `grammar.py`), about somebody (`people.py`), with what makes sense (`choices.py`). Then it is said in each
language (`english.py`, `french.py`, `chinese.py`). What a language leaves open is in `ambiguity.py`.
"""

from heedful.data.demo.corpus import DemoCorpus, demo_corpus, translations

__all__ = ["DemoCorpus", "demo_corpus", "translations"]
