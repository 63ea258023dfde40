"""Models for CTranslate2, which runs encoder-decoders and decoders without torch.

spec               a model's weights as a CTranslate2 specification; reasons why it cannot run a model
model_config       what CTranslate2 needs to know of a model's settings
cache              converted models, kept in the model's folder or in the user's cache
convert_process    the child process that converts a model
library            the ctranslate2 module, and how its threads wait for each other
shortlist          a lexical shortlist, from IBM Model 1
"""
