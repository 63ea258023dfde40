"""The HTTP endpoints of the server.

libretranslate   LibreTranslate's API, at /
native           heedful's own API, below /api/v1
compat           the APIs of DeepL, Google and OpenNMT
look             POST /api/v1/look: the trace of one translation
static           the page and its files
"""
