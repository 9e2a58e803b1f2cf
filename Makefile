# Every target sets up what it needs: a virtual environment made with the newest Python >= 3.12.

VENV := .venv
BIN := $(VENV)/bin
OLDEST := .venv-oldest
WORKERS ?= 2
PYTEST := python -m pytest -n $(WORKERS) --dist worksteal
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check --editable

export PYTHONNOUSERSITE := 1
unexport PYTHONPATH PYTHONHOME VIRTUAL_ENV
MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help
.PHONY: help demo test test-fast check format test-table test-oldest site bench clean

help:  ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' Makefile

demo: $(VENV)/.installed  ## Train a small GPT on 8 virtual devices, planned automatically, compared with jax.jit
	@$(BIN)/python examples/demo.py

test: $(VENV)/.installed  ## Run all tests, the lit suite among them
	@$(BIN)/$(PYTEST)

test-fast: $(VENV)/.installed  ## Run the tests of the rooms that take less than about half a second each
	@$(BIN)/$(PYTEST) -m 'not slow' --ignore=tests/py/end_to_end --ignore=tests/py/api

check: $(VENV)/.installed  ## Run what CI runs: format, lint, types, import laws, tests
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@$(BIN)/python $(PIP_INSTALL) '.[site]' || echo "the site's packages were not installed: its test is skipped"
	@$(BIN)/$(PYTEST)

format: $(VENV)/.installed  ## Format the code and apply the linter's fixes
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

test-table: $(VENV)/.installed  ## Run every program x stages x microbatches x schedule; write the table in docs/
	@$(BIN)/python benchmarks/table.py

test-oldest: $(OLDEST)/.installed  ## Run all tests on the oldest supported jax, 0.11.2
	@$(OLDEST)/bin/$(PYTEST)

site: $(VENV)/.installed  ## Build the documents as an offline site, in build/site
	@$(BIN)/python $(PIP_INSTALL) '.[site]'
	@$(BIN)/python tools/write_gallery.py --reports build/site/gallery/reports
	@$(BIN)/python -m sphinx -W --keep-going -q -b html docs build/site
	@echo build/site/index.html

bench: $(VENV)/.installed  ## Print overhead, planning time and host time per action
	@$(BIN)/python benchmarks/overhead.py

clean:  ## Remove the virtual environments and the caches
	rm -rf $(VENV) $(OLDEST) build *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache

# $(call make-venv,DIRECTORY): leaves a working environment alone, replaces a broken one.
define make-venv
	@$(1)/bin/python -m pip --version >/dev/null 2>&1 || { \
	  python="$$(sh tools/find_python.sh)" && \
	  echo "making $(1) with $$python (once; about a minute)" && \
	  "$$python" -m venv --clear $(1); }
endef

$(VENV)/.installed: pyproject.toml
	$(call make-venv,$(VENV))
	@$(BIN)/python $(PIP_INSTALL) '.[dev]'
	@$(BIN)/python -m compileall -q -j 2 shardc
	@touch $@

$(OLDEST)/.installed: pyproject.toml
	$(call make-venv,$(OLDEST))
	@$(OLDEST)/bin/python $(PIP_INSTALL) '.[test]' jax==0.11.2 jaxlib==0.11.2
	@touch $@
