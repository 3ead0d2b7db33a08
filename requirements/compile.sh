#!/usr/bin/env bash
# Rewrites the pin files cpu.txt and gpu.txt from pyproject.toml. Versions already pinned are kept where they still fit;
# pass --upgrade to move to the newest ones. Needs uv and network; the files hold versions and the hashes of their files,
# never an address. Both supported versions of Python get the same pins. uv.txt pins uv itself, for machines without it.
#
#   bash requirements/compile.sh next FILE   resolves what `make test-next` installs (requirements/next.txt) into FILE
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

UV=${UV:-uv}

compile() { # FILE DEVICE PYTHON [OPTION ...]
    local file=$1 device=$2 python=$3
    shift 3
    "$UV" pip compile pyproject.toml --quiet \
        --extra "$device" --extra judge --extra retrieval --extra decord --extra torchcodec --extra dev --extra docs \
        --python-version "$python" --python-platform x86_64-manylinux_2_28 \
        --generate-hashes --no-emit-index-url --no-emit-find-links --no-annotate \
        --custom-compile-command "bash requirements/compile.sh" \
        --output-file "$file" "$@"
}

compile_for_both() { # DEVICE [OPTION ...]
    local device=$1 older
    shift
    compile "requirements/$device.txt" "$device" 3.12 --constraint requirements/tested.txt "$@"
    older=$(mktemp)
    cp "requirements/$device.txt" "$older"
    compile "$older" "$device" 3.11 --constraint requirements/tested.txt "$@"
    diff "requirements/$device.txt" "$older" >&2 || {
        echo "compile: $device needs other pins for Python 3.11 than for 3.12 (above); bound these packages in pyproject.toml" >&2
        exit 1
    }
    rm "$older"
}

if [[ ${1:-} == next ]]; then
    cp requirements/cpu.txt "$2"
    mapfile -t relaxed < <(sed -n 's/^\([a-z-]*\)>=.*/--upgrade-package=\1/p' requirements/next.txt)
    compile "$2" cpu "${PYTHON_VERSION:-3.12}" --override requirements/next.txt "${relaxed[@]}"
    exit
fi

"$UV" pip compile - --quiet --no-deps --generate-hashes --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
    --output-file requirements/uv.txt "$@" <<<"uv>=0.13,<0.14"
compile_for_both cpu --override requirements/overrides-cpu.txt "$@"
compile_for_both gpu "$@"
