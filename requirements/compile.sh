#!/usr/bin/env bash
# Rewrites the pin files cpu.txt and gpu.txt from pyproject.toml. Versions already pinned are kept where they still fit;
# pass --upgrade to move to the newest ones. Needs uv and network; the files hold versions only, never an address.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

compile() {
    local device=$1
    shift
    uv pip compile pyproject.toml --quiet \
        --extra "$device" --extra judge --extra retrieval --extra mcp --extra haystack --extra decord --extra torchcodec --extra dev --extra docs \
        --constraint requirements/tested.txt \
        --python-version 3.11 --python-platform x86_64-manylinux_2_28 \
        --no-emit-index-url --no-emit-find-links --no-annotate \
        --custom-compile-command "bash requirements/compile.sh" \
        --output-file "requirements/$device.txt" "$@"
}

compile cpu --override requirements/overrides-cpu.txt "$@"
compile gpu "$@"
