# Each target makes its own .venv from constraints.txt: nothing but Python 3.11 or newer is needed.
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
PYTHON ?= $(or $(shell for p in python3.11 python3; do $$p $(NEW_ENOUGH) 2>/dev/null && echo $$p && break; done),python3)
BIN := .venv/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2

.PHONY: help demo demo-corpus reference test test-all lint mutants kill-test serve-test clean

help:
	@echo "make demo       install into .venv, train on the built-in corpus and show the result (some minutes)"
	@echo "make test       install into .venv and run the tests"
	@echo "make test-all   make test, and what takes too long for it: a whole demo, ten killed runs, torch.compile, full-size"
	@echo "                searches, every benchmark program, and the grammar of the demo corpus (scripts/)"
	@echo "make lint       ruff and the strict type checker"
	@echo "make demo-corpus  write the tables of the demo corpus again, byte for byte, from their grammar"
	@echo "make reference  write docs/reference again from the code"
	@echo "make mutants    plant bugs one by one and check that the tests catch each (an hour)"
	@echo "make kill-test  kill runs 100 times with -9 and check that they end as if they had never been killed (some minutes)"
	@echo "make serve-test a server under load, overload, attack and stops, 1,000 random requests for each path (half an hour)"
	@echo "make clean      remove what the other targets made"

# The stamp is newer than what the environment is made from, or the environment is made again.
.venv/ready: pyproject.toml constraints.txt
	@$(PYTHON) $(NEW_ENOUGH) || \
		{ echo "heedful needs Python 3.11 or newer, and $(PYTHON) is not. Name another: make PYTHON=python3.12 $(MAKECMDGOALS)"; exit 1; }
	@echo "installing into .venv; the first time takes some minutes"
	@$(PYTHON) -m venv --clear .venv
	@$(PIP) setuptools
	@# Built with the setuptools of constraints.txt, not with whatever is newest today.
	@$(PIP) --no-build-isolation -e '.[dev]'
	@touch $@

demo: .venv/ready
	$(BIN)/heedful demo

demo-corpus: .venv/ready
	$(BIN)/python -m scripts.demo_corpus

reference: .venv/ready
	$(BIN)/python scripts/reference.py

# One thread for each worker: two workers with two threads each are slower than one alone.
test: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal

# -m "" runs the tests marked "long" too, which pyproject.toml leaves out.
test-all: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m "" tests scripts

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

mutants: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python tests/mutation/mutants.py

kill-test: .venv/ready
	OMP_NUM_THREADS=1 $(BIN)/python tests/stress/kills.py
	OMP_NUM_THREADS=1 $(BIN)/python tests/stress/rank_kills.py

serve-test: .venv/ready
	@mkdir -p build
	OMP_NUM_THREADS=1 $(BIN)/python tests/stress/serve_trials.py --json build/serve-trials.json

clean:
	rm -rf .venv build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
