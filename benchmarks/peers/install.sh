#!/bin/sh
# Installs one peer of benchmarks/speed/train.py into an environment of its own:
#
#     benchmarks/peers/install.sh PEER [DIR]      PEER: opennmt, eole, huggingface or joeynmt
#
# It becomes DIR/PEER (DIR: ~/.cache/heedful-peers) and takes 1 to 2 GB, more where pip finds a torch for GPUs. All get
# the same torch. `PYTHON=python3.11 install.sh …` names another Python; pip reads its own settings, for a mirror or a
# torch without GPU parts. heedful and the plain torch.nn.Transformer loop run in heedful's own environment.
set -eu

peer=${1:?"which one? opennmt, eole, huggingface or joeynmt"}
folder=${2:-"$HOME/.cache/heedful-peers"}/$peer
python=${PYTHON:-python3}

case $peer in
opennmt | eole | huggingface | joeynmt) ;;
*) echo "$peer: not a peer. There are opennmt, eole, huggingface and joeynmt" >&2; exit 2 ;;
esac

rm -f "$folder/installed"
"$python" -m venv --clear "$folder"
install() { "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
install torch==2.13.0

case $peer in
opennmt)
    # It asks for a torch below 2.3, which no longer matters, and which pip cannot be talked out of.
    install --no-deps OpenNMT-py==3.5.1
    install setuptools configargparse 'ctranslate2>=4,<5' tensorboard flask waitress 'pyonmttok>=1.37,<2' pyyaml sacrebleu \
        rapidfuzz pyahocorasick fasttext-wheel spacy six
    ;;
eole)
    install eole==0.6.4 aiohttp # every command imports aiohttp, which it does not ask for
    ;;
huggingface)
    install 'transformers==5.22.*' accelerate
    ;;
joeynmt)
    # importlib_metadata is imported and not asked for; newer versions of sentencepiece lack what it calls.
    install joeynmt==2.3.0 importlib_metadata sentencepiece==0.2.0
    ;;
esac
"$folder/bin/python" -m pip freeze --disable-pip-version-check >"$folder/installed" # also the mark that all went well
