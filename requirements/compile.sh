#!/usr/bin/env bash
# Rewrites the pin files cpu.txt, gpu.txt and next.txt from pyproject.toml. Versions already pinned are kept where they still fit;
# pass --upgrade to move to the newest ones. Needs uv and network; the files hold versions and the hashes of their files,
# never an address. uv.txt pins uv itself, for machines that have none.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

compile() { # PINS DEVICE [OPTION ...]
    local pins=$1 device=$2
    shift 2
    uv pip compile pyproject.toml --quiet \
        --extra "$device" --extra judge --extra retrieval --extra decord --extra torchcodec --extra dev --extra docs \
        --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
        --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
        --custom-compile-command "bash requirements/compile.sh" \
        --output-file "requirements/$pins.txt" "$@"
}

uv pip compile - --quiet --no-deps --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
    --output-file requirements/uv.txt "$@" <<<"uv>=0.13,<0.14"
compile cpu cpu --constraint requirements/tested.txt --override requirements/overrides-cpu.txt "$@"
compile gpu gpu --constraint requirements/tested.txt "$@"
compile next cpu --override requirements/overrides-next.txt "$@"
