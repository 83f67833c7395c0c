# make demo   set up, then match a photograph with its warp and draw the matches
# make test   set up, then lint, check types and run the tests
PYTHON ?= python3
CORE := .venv
DEV := .venv-dev
CV4 := .venv-opencv4
PIP_QUIET := --quiet --disable-pip-version-check

.PHONY: demo test lint opencv4 clean

demo: $(CORE)/ready
	$(CORE)/bin/kd-cv match -o matches.png

test: lint $(DEV)/ready opencv4
	$(DEV)/bin/python -m pytest

lint: $(DEV)/ready
	$(DEV)/bin/ruff check .
	$(DEV)/bin/ruff format --check .
	$(DEV)/bin/mypy

# The contract with OpenCV holds on the oldest supported version too.
opencv4: $(CV4)/ready
	$(CV4)/bin/python -m pytest tests/test_contract.py

$(CORE)/ready: pyproject.toml
	$(PYTHON) -m venv $(CORE)
	$(CORE)/bin/pip install $(PIP_QUIET) -e ".[cli]"
	touch $@

# A pinned torch first: what follows then installs no other build of it.
$(DEV)/ready: pyproject.toml
	$(PYTHON) -m venv $(DEV)
	$(DEV)/bin/pip install $(PIP_QUIET) torch==2.13.0
	$(DEV)/bin/pip install $(PIP_QUIET) -e ".[dev]"
	touch $@

$(CV4)/ready: pyproject.toml
	$(PYTHON) -m venv $(CV4)
	$(CV4)/bin/pip install $(PIP_QUIET) -e . "opencv-python==4.10.0.84" pytest hypothesis scikit-image
	touch $@

clean:
	rm -rf $(CORE) $(DEV) $(CV4)
