PYTHON ?= python3
CORE := .venv
DEV := .venv-dev
CV4 := .venv-opencv4
DOCS := .venv-docs
PIP_QUIET := --quiet --disable-pip-version-check

.PHONY: help demo test quick lint opencv4 coverage compat compat-torch golden nightly bench soak hostile docs clean

help:  ## list these targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /\1\t/' | expand -t 16

demo: $(CORE)/ready  ## set up, then match a photograph with its warp and draw the matches
	$(CORE)/bin/kd-cv match -o matches.png

test: lint $(DEV)/ready opencv4  ## set up, then lint, check types and run the tests
	$(DEV)/bin/python -m pytest

quick: $(DEV)/ready  ## run the tests that are not marked slow, in a minute
	$(DEV)/bin/python -m pytest -m "not slow"

lint: $(DEV)/ready  ## check style, types and layers
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/mypy
	$(DEV)/bin/lint-imports

# The contract with OpenCV holds on the oldest supported version too.
opencv4: $(CV4)/ready  ## run the tests of the contract with OpenCV on its version 4.10
	$(CV4)/bin/python -m pytest tests/contract/feature2d tests/contract/test_entry_points.py \
		tests/contract/test_kinds_of_images.py tests/unit/opencv

# The compiled functions are seen by running a few of their tests as plain Python. Processes that are
# killed, or whose files may not grow, leave broken files of what they reached: these are passed over.
coverage: $(DEV)/ready  ## run the tests and list the lines that none of them reaches
	$(DEV)/bin/coverage erase
	$(DEV)/bin/coverage run -m pytest
	NUMBA_DISABLE_JIT=1 $(DEV)/bin/coverage run -m pytest tests/witness/test_golden.py \
		tests/unit/descriptor/test_fused.py tests/unit/descriptor/test_backward.py tests/unit/detector \
		-k "concat-16-fused or (on_patches and (16-concat or 17-polar)) or (autograd_finds and 17-polar) \
		or flat_images or small_changes or smallest_image or compiled_blurs or compiled_angles \
		or (blob_is_found and 1.5)"
	PYTHONWARNINGS="ignore:Couldn't use data file" $(DEV)/bin/coverage combine --quiet
	rm -f .coverage.*
	$(DEV)/bin/coverage report

compat: $(DEV)/ready  ## run the tests with the oldest, a middle and the newest versions; needs Python 3.10, 3.12, 3.13
	$(DEV)/bin/nox

compat-torch: $(DEV)/ready  ## the same for the oldest and the newest torch: several GB; needs Python 3.11, 3.13
	$(DEV)/bin/nox -s torch

golden: $(DEV)/ready  ## write the stored descriptors again, when the descriptor is meant to change
	$(DEV)/bin/python tests/witness/golden/make.py

nightly: $(DEV)/ready  ## run the long tests: changed files, kills, full disks
	$(DEV)/bin/python -m pytest -m nightly

bench: $(DEV)/ready  ## measure speed and memory against SIFT and Kornia, for minutes, on an idle machine
	$(DEV)/bin/python -m experiments bench

soak: $(DEV)/ready  ## compute from threads and processes, for minutes, and watch memory and results
	$(DEV)/bin/python -m experiments soak

hostile: $(DEV)/ready  ## hundreds of hostile calls, by name: one that crashes is the last
	$(DEV)/bin/python -m pytest -v tests/robust tests/contract/test_kinds_of_images.py

# Servers lack the libraries that opencv-python needs: tools/headless.py then takes another build.
$(CORE)/ready: pyproject.toml
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/pip install $(PIP_QUIET) -e ".[cli]"
	$(CORE)/bin/python tools/headless.py
	touch $@

# The pinned torch in the build that this machine has, the rest by version and hash.
$(DEV)/ready: pyproject.toml tools/dev.lock
	$(PYTHON) -m venv $(DEV)
	$(DEV)/bin/pip install $(PIP_QUIET) torch==2.13.0
	$(DEV)/bin/pip install $(PIP_QUIET) --no-deps --require-hashes -r tools/dev.lock
	$(DEV)/bin/pip install $(PIP_QUIET) --no-deps --no-build-isolation -e .
	$(DEV)/bin/python tools/headless.py
	touch $@

# Without torch and the other extras: the site reads the source, it does not run it.
$(DOCS)/ready: pyproject.toml
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/pip install $(PIP_QUIET) -e ".[docs]"
	$(DOCS)/bin/python tools/headless.py
	touch $@

$(CV4)/ready: pyproject.toml
	$(PYTHON) -m venv $(CV4)
	$(CV4)/bin/pip install $(PIP_QUIET) -e . "opencv-python==4.10.0.84" pytest hypothesis scikit-image
	$(CV4)/bin/python tools/headless.py
	touch $@

docs: $(DOCS)/ready  ## build the documentation into site/, strictly; open site/index.html
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict --quiet

clean:  ## remove the environments
	rm -rf $(CORE) $(DEV) $(CV4) $(DOCS) .venv-compat
