# Two commands do everything: `make run` and `make test`. Both set up what they need and are safe to repeat.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUN_STAMP := $(VENV)/.installed-to-run
SERVERS_STAMP := $(VENV)/servers/.installed
BENCH_STAMP := $(VENV)/bench/.installed
# Without bytecode every process of a test run compiles everything again.
export PYTHONDONTWRITEBYTECODE :=
# Files of the fast tier stay in memory where there are 2 GB of it: what they cost is mostly waiting for a disk.
MEMORY = $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 2000000 { print "/dev/shm" }')

PAGE_SOURCES = $(shell find page docs/reference/gateway-asyncapi.json -type f \
	-not -path 'page/node_modules/*' -not -path 'page/dist/*' -not -path 'page/src/generated/*' 2>/dev/null)

.PHONY: page setup run test test-servers check lint types style imports structure system bench bench-full docs snapshots clean help

help:  ## Show the targets.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | sort

setup: $(STAMP)  ## Create .venv and install Retinue with everything tests need.

$(STAMP): pyproject.toml constraints.txt scripts/setup.sh hatch_build.py
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/setup.sh dev
	@touch $(STAMP) $(RUN_STAMP)

# Only what running needs: the tools for tests are several times as large.
$(RUN_STAMP): pyproject.toml constraints.txt scripts/setup.sh hatch_build.py $(PAGE_SOURCES)
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/setup.sh run
	@touch $(RUN_STAMP)

run: $(RUN_STAMP)  ## Start the assistant; a new user is guided.
	@$(BIN)/retinue up

# Four workers on two cores: tests also wait for disks and for processes they start.
test: $(STAMP)  ## Every check and every test.
	@$(MAKE) --no-print-directory --jobs 2 --output-sync system lint
	$(BIN)/python -m pytest -n 4 --dist worksteal -p tests.branch_coverage -p tests.repeat_failed

check: $(STAMP) lint  ## The fast tier: static checks and the quick tests that need no system package.
	PYTEST_DEBUG_TEMPROOT=$(MEMORY) $(BIN)/pytest -n 3 --dist worksteal -m "not slow" \
		-o tmp_path_retention_policy=failed --hypothesis-profile=quick

# Not part of `make test`: the proxy is 300 MB of packages that nothing else needs.
test-servers: $(SERVERS_STAMP)  ## The adapters against LiteLLM's proxy and llama.cpp's server.
	$(BIN)/python -m pytest tests/providers/test_litellm.py tests/providers/test_llama_server.py

$(SERVERS_STAMP): $(STAMP) constraints-servers.txt
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/setup.sh servers
	@touch $(SERVERS_STAMP)

lint: $(STAMP)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync types style imports structure page

# mypy ends with 2 if its workers do not start within 3 seconds, as on a busy machine.
types:
	$(BIN)/mypy --num-workers 2 || { [ $$? -eq 2 ] && $(BIN)/mypy; }

style:
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

imports:
	$(BIN)/lint-imports

structure:
	$(BIN)/python scripts/structure.py --check

page: $(STAMP)  ## Build the control page, and check its types.
	@$(BIN)/python scripts/build_page.py --check

system:
	@sh scripts/system-packages.sh

bench: $(STAMP)  ## Measure speed and memory (minutes); results go to bench/results/.
	$(BIN)/python -m bench

$(BENCH_STAMP): $(STAMP) constraints-bench.txt
	@PYTHON="$(PYTHON)" VENV="$(VENV)" sh scripts/setup.sh bench
	@touch $(BENCH_STAMP)

bench-full: $(BENCH_STAMP)  ## The long fault, fuzz, attack and scale runs.
	$(BIN)/python -m bench --full

docs: $(STAMP)  ## Regenerate the reference pages that come from the code.
	$(BIN)/python scripts/make_docs.py

snapshots: $(STAMP)  ## Regenerate the committed prompt snapshots.
	$(BIN)/python -m tests.prompt.snapshots

clean:  ## Remove everything that setup and tests made.
	rm -rf $(VENV) page/dist page/node_modules page/src/generated .mypy_cache .ruff_cache .hypothesis .import_linter_cache build dist
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
