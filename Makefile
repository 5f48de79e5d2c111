# Two commands do everything: `make run` and `make test`. Both set up what they need and are safe to repeat.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# Looks for secrets in everything that one process kept or showed, so it has a process of its own.
CANARIES := tests/security/test_canaries.py

.PHONY: setup run test check lint system bench bench-full docs snapshots clean help

help:  ## Show the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort

setup: $(STAMP)  ## Create .venv and install Retinue with everything tests need.

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/setup.sh
	@touch $(STAMP)

run: $(STAMP)  ## Start the assistant on its embedded defaults.
	@$(BIN)/retinue up

test: $(STAMP) system lint  ## Every check and every test.
	$(BIN)/pytest -n 2 --ignore $(CANARIES)
	$(BIN)/pytest $(CANARIES)
	$(BIN)/python scripts/branch_coverage.py

check: $(STAMP) lint  ## The fast tier: static checks and the tests that need no system package.
	$(BIN)/pytest -n 2 -m "not slow" --ignore $(CANARIES)

lint: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

system:
	@sh scripts/system-packages.sh

bench: $(STAMP)  ## Measure speed and memory (minutes); results go to bench/results/.
	$(BIN)/python -m bench

bench-full: $(STAMP)  ## The long fault, fuzz and scale runs.
	$(BIN)/python -m bench --full

docs: $(STAMP)  ## Regenerate the reference pages that come from the code.
	$(BIN)/python scripts/make_docs.py

snapshots: $(STAMP)  ## Regenerate the committed prompt snapshots.
	$(BIN)/python -m tests.prompt.snapshots

clean:  ## Remove everything that setup and tests made.
	rm -rf $(VENV) .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
