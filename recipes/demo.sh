#!/usr/bin/env bash
# `make demo`: synthetic videos, SFT cold start, then a real GRPO run of FrameThinker; on a CPU where there is no GPU.
SYNTHETIC=1 exec bash "$(dirname "${BASH_SOURCE[0]}")/framethinker_grpo.sh" "$@"
