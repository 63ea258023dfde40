#!/bin/sh
# Install one peer of benchmarks/speed/train.py into its own environment:
#
#     benchmarks/peers/install.sh PEER [DIR]      PEER: opennmt, eole, huggingface or joeynmt
#
# The environment is DIR/PEER (default of DIR: ~/.cache/heedful-peers) and takes 1 to 2 GB, more with a torch for GPUs.
# All peers get the same version of torch. `PYTHON=python3.11 install.sh …` uses another Python. pip reads its own
# settings, for instance for a mirror or for a torch without GPU support. heedful and the plain torch.nn.Transformer
# loop run in heedful's environment.
set -eu

peer=${1:?"name a peer: opennmt, eole, huggingface or joeynmt"}
folder=${2:-"$HOME/.cache/heedful-peers"}/$peer
python=${PYTHON:-python3}

case $peer in
opennmt | eole | huggingface | joeynmt) ;;
*) echo "$peer: unknown peer; allowed: opennmt, eole, huggingface, joeynmt" >&2; exit 2 ;;
esac

rm -f "$folder/installed"
"$python" -m venv --clear "$folder"
install() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
install torch==2.13.0

case $peer in
opennmt)
    # It requires torch below 2.3, although newer versions work; --no-deps keeps pip from installing the old one.
    install --no-deps OpenNMT-py==3.5.1
    install setuptools configargparse 'ctranslate2>=4,<5' tensorboard flask waitress 'pyonmttok>=1.37,<2' pyyaml sacrebleu \
        rapidfuzz pyahocorasick fasttext-wheel spacy six
    ;;
eole)
    install eole==0.6.4 aiohttp # every command imports aiohttp, which is not among its requirements
    ;;
huggingface)
    install 'transformers==5.22.*' accelerate
    ;;
joeynmt)
    # It imports importlib_metadata without requiring it, and calls functions that newer versions of sentencepiece lack.
    install joeynmt==2.3.0 importlib_metadata sentencepiece==0.2.0
    ;;
esac
"$folder/bin/python" -m pip freeze --disable-pip-version-check >"$folder/installed" # train.py also takes this file as the sign of a complete installation
