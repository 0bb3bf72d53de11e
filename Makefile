# Everything runs in .venv, which each target sets up as far as it needs, from nothing but
# Python >= 3.10 and a C++20 compiler: CMake and Ninja come from PyPI. Stamp files in .venv record
# what is installed; the package is installed editable, so only a change of native/, CMakeLists.txt
# or pyproject.toml makes anything here run again.
#
#   make reproduce ARGS='table --data FOLDER' | alternatives ARGS='--data FOLDER' | interactive DATA=FOLDER
#   make demo | gallery | test | test-slow | lint | format | bench | docs | docs-outputs | release | portable
#   make native-test | native-tsan | native-clang | native-aarch64
#   make fuzz N=1000 JOBS=2 SEED=0 | soak | clean | distclean

PYTHON ?= python3
VENV ?= .venv
# A known version keeps test runs comparable; where it cannot be had, any CPU build will do.
TORCH ?= torch==2.13.0
PYTEST_ARGS ?=
BENCH_ARGS ?=
N ?= 1000
SEED ?= 0
JOBS ?= $(shell nproc 2>/dev/null || echo 2)
FUZZ_ARGS ?=
SOAK_ARGS ?=
DEMO_ARGS ?=
ARGS ?= --help

BIN := $(VENV)/bin
PY := $(BIN)/python
export PIP_DISABLE_PIP_VERSION_CHECK := 1
PIP := $(PY) -m pip install --quiet
# The list in pyproject.toml's [build-system], quoted for the shell.
BUILD_REQUIRES := $(shell sed -n 's/^requires = \[\(.*\)\]$$/\1/p' pyproject.toml | tr ',' ' ')
CTEST := $(BIN)/ctest --output-on-failure --no-tests=error --parallel $(JOBS)
INSTALL := $(PIP) --no-build-isolation --editable
NATIVE := CMakeLists.txt $(shell find native -name '*.[ch]pp')
SANITIZER_BUILD := -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo -DDENSECRF_BUILD_PYTHON=OFF \
	-DDENSECRF_BUILD_TESTS=ON -DDENSECRF_WERROR=ON

.PHONY: help demo reproduce interactive alternatives gallery test test-slow lint format native-test native-tsan native-clang native-aarch64 bench docs docs-outputs release portable \
	fuzz soak clean distclean
.DELETE_ON_ERROR:

help:
	@sed -n 's/^#   make/make/p' Makefile

# --- Use -----------------------------------------------------------------------------------------

demo: $(VENV)/.native $(VENV)/.extra-demo
	$(BIN)/densecrf demo --out out $(DEMO_ARGS)

# The paper's evaluation and our studies; without ARGS, their commands.
reproduce: $(VENV)/.native $(VENV)/.extra-experiments
	$(PY) -m experiments $(ARGS)

# The table and the pictures of docs/when-does-it-help.md; DATA is a folder with one folder for each
# kind of images. An interrupted run goes on where it was.
quality: $(VENV)/.native $(VENV)/.extra-experiments
	$(PY) -m experiments.quality --data $(DATA) --jobs 2 --page docs/when-does-it-help.md $(ARGS)

# The table of strokes in docs/how-to/scribbles.md; DATA as above.
interactive: $(VENV)/.native $(VENV)/.extra-interactive
	$(PY) -m experiments.interactive --data $(DATA) --jobs 2 $(ARGS)

alternatives: $(VENV)/.native $(VENV)/.extra-alternatives
	$(PY) -m experiments alternatives $(ARGS)

# The pictures of docs/gallery.md; look at them before they are committed.
gallery: $(VENV)/.native $(VENV)/.extra-test $(VENV)/.torch
	for example in $(filter-out examples/show.py examples/torch_%,$(wildcard examples/*.py)); do \
		$(PY) $$example --out docs/images/gallery || exit 1; done
	$(PY) examples/torch_scribbles.py --output docs/images/gallery/torch_scribbles.png

test: $(VENV)/.native $(VENV)/.extra-test $(VENV)/.torch $(VENV)/.peers
	$(PY) -m pytest --numprocesses logical --dist loadfile $(PYTEST_ARGS)

test-slow: $(VENV)/.native $(VENV)/.extra-test $(VENV)/.torch
	$(PY) -m pytest -m slow $(PYTEST_ARGS)

fuzz: $(VENV)/.native $(VENV)/.extra-test $(VENV)/.torch
	$(PY) tools/fuzz --n $(N) --seed $(SEED) --jobs $(JOBS) $(FUZZ_ARGS)

soak: $(VENV)/.native $(VENV)/.extra-test
	$(PY) tools/soak.py $(SOAK_ARGS)
	$(PY) tools/soak_app.py $(SOAK_APP_ARGS)

bench: $(VENV)/.native $(VENV)/.extra-bench
	$(PY) -m benchmarks $(BENCH_ARGS)

# All of a release but the upload, in dist/.
release: $(VENV)/.native $(VENV)/.extra-release $(VENV)/.recipes
	$(PY) tools/release.py versions build check

# The app with everything in it, for people without Python: a zip in dist/.
portable: $(VENV)/.native
	$(PY) tools/portable.py

docs: $(VENV)/.native $(VENV)/.extra-docs $(VENV)/.torch
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	$(PY) tools/check_site.py site

# The outputs that the pages show, from the code above them; read the difference before a commit.
docs-outputs: $(VENV)/.native $(VENV)/.extra-test $(VENV)/.torch
	$(PY) -m benchmarks.tables
	DENSECRF_WRITE_DOCS=1 $(PY) -m pytest -q tests/test_docs.py -k code_of_the_page

# The type checker needs to see the optional dependencies, or their types are taken for Any.
lint: $(VENV)/.native $(VENV)/.extra-dev $(VENV)/.extra-test $(VENV)/.torch
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy --strict
	find native -name '*.[ch]pp' | xargs $(BIN)/clang-format --dry-run -Werror
	$(BIN)/codespell README.md CHANGELOG.md CONTRIBUTING.md docs src native tests tools benchmarks examples experiments
	$(BIN)/proselint check --config proselint.json README.md CONTRIBUTING.md docs
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.citation-file-format CITATION.cff
	$(PY) tools/check_workflows.py

format: $(VENV)/.extra-dev
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .
	find native -name '*.[ch]pp' | xargs $(BIN)/clang-format -i

native-test: $(VENV)/.native
	$(PY) tools/check_isa_symbols.py build/*/editable
	$(BIN)/cmake -S . -B build/native-asan $(SANITIZER_BUILD) -DDENSECRF_SANITIZE=address,undefined
	$(BIN)/cmake --build build/native-asan
	$(CTEST) --test-dir build/native-asan

# Without address randomisation where the tool is at hand: older TSan run-times cannot cope with
# the amount of it that newer kernels use.
native-tsan: $(VENV)/.tools
	$(BIN)/cmake -S . -B build/native-tsan $(SANITIZER_BUILD) -DDENSECRF_SANITIZE=thread
	$(BIN)/cmake --build build/native-tsan
	$$(setarch -R true 2>/dev/null && echo setarch -R) \
		$(CTEST) --test-dir build/native-tsan

# With another compiler, and for another processor: cross-compiled, run in an emulator. Plain Release
# builds, whose warnings are errors.
PLAIN_BUILD := $(SANITIZER_BUILD) -DCMAKE_BUILD_TYPE=Release

native-clang: $(VENV)/.tools
	$(BIN)/cmake -S . -B build/native-clang $(PLAIN_BUILD) -DCMAKE_CXX_COMPILER=clang++
	$(BIN)/cmake --build build/native-clang
	$(CTEST) --test-dir build/native-clang

native-aarch64: $(VENV)/.tools
	$(BIN)/cmake -S . -B build/native-aarch64 $(PLAIN_BUILD) -DCMAKE_SYSTEM_NAME=Linux \
		-DCMAKE_SYSTEM_PROCESSOR=aarch64 -DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++ \
		-DCMAKE_CROSSCOMPILING_EMULATOR='qemu-aarch64;-L;/usr/aarch64-linux-gnu'
	$(BIN)/cmake --build build/native-aarch64
	$(CTEST) --test-dir build/native-aarch64

clean:
	rm -rf build dist site out .mypy_cache .ruff_cache .pytest_cache .hypothesis .coverage htmlcov
	find src experiments tests benchmarks examples tools docs -name __pycache__ -type d -prune -exec rm -rf {} +
	rm -f $(VENV)/.native

distclean: clean
	rm -rf $(VENV)

# --- Set-up --------------------------------------------------------------------------------------

$(VENV)/.created:
	@$(PYTHON) tools/check_machine.py
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.tools: pyproject.toml | $(VENV)/.created
	$(PIP) $(BUILD_REQUIRES) cmake ninja
	@touch $@

$(VENV)/.native: $(NATIVE) pyproject.toml src/densecrf/__init__.py $(VENV)/.tools
	$(INSTALL) .
	@touch $@

$(VENV)/.extra-%: pyproject.toml | $(VENV)/.native
	$(INSTALL) '.[$*]'
	@touch $@

# What the drop-in modules are compared with, where it can be built; MONAI takes the torch there is.
$(VENV)/.peers: | $(VENV)/.torch
	$(PIP) pydensecrf2 || echo 'No pydensecrf2 here: comparisons with it are skipped'
	$(PIP) monai || echo 'No MONAI here: its tests are skipped'
	$(PIP) PyMaxflow opencv-contrib-python-headless || \
		echo 'No PyMaxflow or OpenCV here: comparisons with them are skipped'
	@touch $@

# Parses conda-forge's recipe, on platforms that it has wheels for.
$(VENV)/.recipes: | $(VENV)/.created
	$(PIP) py-rattler-build || echo 'No rattler-build here: the recipe is not parsed'
	@touch $@

$(VENV)/.torch: | $(VENV)/.created
	$(PIP) '$(TORCH)' || $(PIP) torch --index-url https://download.pytorch.org/whl/cpu \
		|| $(PIP) torch
	case $$(uname -s) in Linux) $(PIP) triton || echo 'No Triton here: its tests are skipped' ;; esac
	@touch $@
