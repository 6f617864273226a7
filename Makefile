# Each target sets up what it needs: a virtual environment in .venv with the locked requirements.
# `make help` lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready

export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow lint format ui docs clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv with the locked requirements

$(READY): requirements.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Laurel needs Python 3.11 or newer; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --disable-pip-version-check --require-virtualenv -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --require-virtualenv --no-deps --editable .
	@touch $(READY)

run: $(READY)  ## run the pipeline and print the table of results
	@dvc repro
	@echo
	@laurel table reports
	@echo
	@echo "report:  file://$(CURDIR)/reports/report.html"
	@echo "compare: make ui"

test: $(READY)  ## run the tests
	@$(BIN)/python -m pytest -n 2 -m "not slow"

test-slow: $(READY)  ## run the tests that train until something is learned
	@$(BIN)/python -m pytest -n 2 -m slow

lint: $(READY)  ## check style, format and types
	@ruff check .
	@ruff format --check .
	@mypy

format: $(READY)  ## mend style and format
	@ruff check --fix .
	@ruff format .

ui: $(READY)  ## open MLflow on the runs, at http://127.0.0.1:5000
	@laurel ui

docs: $(READY)  ## copy what the README shows of the last run to docs/
	@mkdir -p docs
	@cp reports/metrics.json reports/figures/success_curve.png docs/
	@laurel table reports --markdown

clean:  ## remove the environment and everything that a run wrote, MLflow's runs aside
	rm -rf $(VENV) data reports
