# Every target sets itself up: it makes .venv with the package, its development tools, and CuPy
# where there is an NVIDIA driver. It takes Python 3.11 or newer, and make.

# The first Python that is new enough. `make PYTHON=/path/to/python3.12` chooses another.
PYTHON := $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && \
	echo $$python && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/installed
DRIVER := $(shell command -v nvidia-smi || ls -d /proc/driver/nvidia 2>/dev/null)
EXTRAS := $(if $(DRIVER),[gpu])

.PHONY: dev lint types kernels test emulate test-gpu test-large fuzz bench demo clean

dev: $(STAMP)

$(STAMP): pyproject.toml
	$(if $(PYTHON),,$(error there is no Python 3.11 or newer; name one with PYTHON=))
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --upgrade "pip>=25.1"
	$(BIN)/pip install --quiet --editable ".$(EXTRAS)" --group dev
	touch $(STAMP)

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check

types: $(STAMP)
	$(BIN)/mypy
	$(BIN)/pyright

# Every kernel for every architecture, without a GPU; what did not change is not compiled again.
kernels: $(STAMP)
	$(BIN)/python -m flashtrie.gpu.compile_check --cache $(VENV)/kernels

test: lint types kernels
	$(BIN)/pytest -m "not gpu" -n 2
	$(MAKE) emulate

# The tests for the GPU on an emulated one, where there is what that takes.
emulate: $(STAMP)
	! $(BIN)/python -m tests.emulator || CUPY_CACHE_DIR=$(CURDIR)/$(VENV)/emulated \
		HYPOTHESIS_PROFILE=emulated FLASHTRIE_GPU_MUTANTS=100 $(BIN)/python -m pytest -n 2 \
		-p tests.emulator.plugin -m "gpu and not hardware" tests/gpu tests/sampling

test-gpu: $(STAMP)
	$(BIN)/pytest -m gpu

# What `make test` leaves out for its size: some minutes, and gigabytes of memory and of disk.
test-large: $(STAMP)
	FLASHTRIE_LARGE=1 $(BIN)/pytest -m large

# Guided by coverage, without end but for the seconds; what is found new stays in .fuzz.
FUZZ_SECONDS := 60
fuzz: $(STAMP)
	$(BIN)/pip install --quiet --disable-pip-version-check --group fuzz
	mkdir -p .fuzz/reader .fuzz/parquet
	$(BIN)/python -m tests.fuzz.coverage reader -max_total_time=$(FUZZ_SECONDS) .fuzz/reader
	$(BIN)/python -m tests.fuzz.coverage parquet -max_total_time=$(FUZZ_SECONDS) .fuzz/parquet

bench: demo/keywords.trie
	$(BIN)/trie bench demo/keywords.trie --bw 100 --bw 1000 --batch 1 --batch 8

demo/keywords.trie:
	$(MAKE) demo

# What a first user does, from nothing to a search, in the folder demo.
demo: export PATH := $(CURDIR)/$(BIN):$(PATH)
demo: $(STAMP)
	rm -rf demo && mkdir demo
	cd demo && trie generate keywords --keywords 1e6
	cd demo && trie build keywords --tag kind=wide
	cd demo && trie info
	cd demo && trie verify --against keywords
	cd demo && trie bench --bw 1000 --save-queries queries.npz
	cd demo && trie search --queries queries.npz --bw 1000 --top-k 1000 -o results.parquet
	cd demo && trie dump | head -3
	cd demo && trie lookup --tokens $$(trie dump | head -1 | cut -f 2)

clean:
	rm -rf $(VENV) demo dist .fuzz .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
