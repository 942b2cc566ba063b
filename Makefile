# Everything from a fresh clone: Python 3.10-3.13 and make are presumed, nothing else.
#   make demo    deploys the real stack to an embedded AWS and shows a sick job being stopped
#   make test    passes all tests
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
REQUIREMENTS := requirements/dev.txt requirements/torch.txt requirements/frameworks.txt
SYNC := $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

.DEFAULT_GOAL := help
.PHONY: help install demo test check lint types unit infra deployed demonstrated packaging bench lock clean

help:  ## say what there is
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

$(STAMP): $(REQUIREMENTS) pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 10) <= v <= (3, 13) else "Trainwarden needs Python 3.10 to 3.13, %s is Python %d.%d: run make PYTHON=python3.13 ..." % (sys.executable, *v))'
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "installing the pinned requirements into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check $(foreach file,$(REQUIREMENTS),-r $(file))
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation --editable .
	@touch $@

install: $(STAMP)  ## only set up .venv, with the trainwarden, cdk's node and npx commands

demo: $(STAMP)  ## a sick training job is caught and stopped, a healthy one finishes
	@$(BIN)/python -m trainwarden.embedded.demo

test: $(STAMP)  ## every check and test there is, two at a time
	@$(MAKE) --no-print-directory -j2 $(SYNC) deployed lint types unit infra packaging demonstrated
	@echo "all checks and tests passed"

check: $(STAMP) lint types unit  ## the fast part of the tests

lint: $(STAMP)
	@$(BIN)/ruff format --check --quiet .
	@$(BIN)/ruff check --quiet .
	@PYTHONPATH=. $(BIN)/lint-imports --no-cache

types: $(STAMP)
	@$(BIN)/mypy --no-error-summary layers/core/python/trainwarden lambdas infra app.py tests benchmarks examples

unit: $(STAMP)
	@$(BIN)/pytest -q tests --ignore=tests/infra --ignore=tests/packaging --ignore=tests/deployed

infra: $(STAMP)
	@$(BIN)/pytest -q tests/infra

deployed: $(STAMP)
	@$(BIN)/pytest -q tests/deployed

demonstrated: deployed  # not beside it: both would build the same layers
	@$(BIN)/python -m trainwarden.embedded.demo

packaging: $(STAMP)
	@$(BIN)/pytest -q tests/packaging

bench: $(STAMP)  ## the benchmarks, each beside its target
	@for script in $(filter-out benchmarks/detection.py,$(shell grep -l __main__ benchmarks/*.py)); do \
		echo "== $$script"; $(BIN)/python $$script || exit 1; done
	@echo "== benchmarks/detection.py"; $(BIN)/python benchmarks/detection.py tests/training/healthy --seeds 0

lock: $(STAMP)  ## renew the pinned requirement files
	@$(BIN)/uv pip compile --quiet --universal --upgrade --python-version 3.10 --no-annotate --no-header requirements/dev.in -o requirements/dev.txt
	@$(BIN)/uv pip compile --quiet --universal --python-version 3.10 --generate-hashes --no-header -c requirements/dev.txt layers/deps/requirements.in -o layers/deps/requirements.txt

clean:  ## remove what make created
	rm -rf $(VENV) cdk.out build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
