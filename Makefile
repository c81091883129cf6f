# Each target sets up all that it needs; nothing is repeated when nothing changed.
.PHONY: help setup browser demo docs check test test-all test-vllm test-sglang test-triton release-check coverage conformance lint imports types links clean
.DEFAULT_GOAL := help

help:
	@echo "make demo      photos through the emulated DPU, batching policies side by side; writes out/demo/report.html"
	@echo "make docs      the site of the documentation, in build/docs/html; needs no network"
	@echo "make check     lint, types, policies, simulator, runtime in virtual time; 3 minutes"
	@echo "make test      lint, types and the test suite; a quarter of an hour"
	@echo "make test-all  the same with the long corpora, whole experiments and mutation testing; hours"
	@echo "make test-vllm  the front end for vLLM before a real vLLM, in an environment of its own (3 GB)"
	@echo "make test-sglang  ready tensors before SGLang's own processors, in an environment of its own (1.3 GB)"
	@echo "make test-triton  the model repository of deploy/triton in a real Triton, in an environment of its own (0.4 GB)"
	@echo "make release-check  builds the wheel and the source distribution, and tries both in clean environments"
	@echo "make coverage  lines, branches and toggles of the RTL that its tests reach, and those that they do not"
	@echo "make conformance  what calls of pyxrt give on the emulated device, and with REAL on real ones"
	@echo "make clean     remove what was built (not .venv)"

setup:
	@scripts/setup

browser: setup
	@scripts/setup --browser

demo: setup
	.venv/bin/headrace demo --out out/demo

# A warning, such as one of a broken link, is an error.
docs: setup
	.venv/bin/python scripts/docs_index.py
	.venv/bin/sphinx-build -b html -W --keep-going -n -q -d build/docs/doctrees docs build/docs/html
	@echo "the site is in build/docs/html/index.html"

# The stages of each tier stand in the script, which prints the time of each.
check test test-all:
	@scripts/run_tests $@

# vLLM is in an environment of its own, and the tests start it as a server.
test-vllm: setup
	scripts/setup_vllm
	.venv/bin/python -m pytest -m vllm tests/host/adapters tests/benchmarks

# SGLang's environment has that of the tests within it, and runs them itself.
test-sglang: setup
	scripts/setup_sglang
	build/sglang/bin/python -m pytest -m sglang tests/host/adapters

# Triton is in an environment of its own, too.
test-triton: setup
	scripts/setup_triton
	.venv/bin/python -m pytest -m triton tests/deploy

release-check:
	scripts/release_check

coverage: setup
	.venv/bin/python scripts/coverage_rtl.py

conformance: setup
	.venv/bin/python scripts/conformance_xrt.py $(REAL)

lint: imports
	.venv/bin/ruff check .
	.venv/bin/ruff format --check --quiet .
	.venv/bin/python scripts/tidy_hls.py
	.venv/bin/python scripts/lint_rtl.py
	.venv/bin/python scripts/check_words.py
	.venv/bin/python scripts/readability.py --check

imports: links
	cd build/typing && PYTHONPATH=. ../../.venv/bin/lint-imports --no-cache --no-logo ../../pyproject.toml

types: links
	.venv/bin/mypy

# mypy and import-linter do not see setuptools' mapping of folders into the namespace: they are given one made of links.
links: setup
	@mkdir -p build/typing/headrace
	@for folder in batching bitstreams hls host sim; do ln -sfn ../../../$$folder build/typing/headrace/$$folder; done
	@ln -sfn ../../../headrace/__init__.py build/typing/headrace/__init__.py
	@ln -sfn ../../../headrace/py.typed build/typing/headrace/py.typed

clean:
	rm -rf build out .mypy_cache .ruff_cache .pytest_cache .hypothesis
