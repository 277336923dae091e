# Everything a newcomer needs: `make run` and `make test`. Both create the virtual environment on first use.
PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
CONSTRAINTS ?= constraints.txt
LOCK ?=  # requirements-dev.lock: exactly the tested versions, by hash (Python 3.11 on Linux x86-64)
STAMP := $(VENV)/.installed
WORKERS ?= 2

OPTIONS ?=

.PHONY: run test test-slow test-minimum docs lint format bench clean

$(STAMP): pyproject.toml $(CONSTRAINTS)
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) torch
ifneq ($(strip $(LOCK)),)
	$(BIN)/pip install --quiet --require-hashes --no-deps --requirement $(LOCK)
	$(BIN)/pip install --quiet --no-deps --editable .
else
	$(BIN)/pip install --quiet --constraint $(CONSTRAINTS) --editable '.[dev]'
endif
	touch $@

run: $(STAMP)
	$(BIN)/isostep demo

test: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) $(OPTIONS)

test-slow: $(STAMP)
	$(BIN)/pytest -n $(WORKERS) -m slow $(OPTIONS)

test-minimum:  # the tests at the oldest versions that pyproject.toml allows, in an environment of their own
	$(MAKE) test VENV=.venv-minimum CONSTRAINTS=constraints-minimum.txt LOCK=

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

docs: $(STAMP)  # the documentation site, in build/site; a broken link or reference is an error
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(STAMP)
	$(BIN)/python benchmarks/overhead.py

clean:
	rm -rf $(VENV) .venv-minimum build dist .pytest_cache .ruff_cache
