#!/usr/bin/env bash
# `make demo`: synthetic videos, SFT cold start, then a real GRPO run of FrameThinker; on a CPU where there is no GPU.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
export SYNTHETIC=1
bash "$REPO/recipes/framethinker_grpo.sh" "$@"
