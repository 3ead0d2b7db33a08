#!/usr/bin/env bash
# `make demo`: synthetic videos, SFT cold start, then a real GRPO run of FrameThinker; on a CPU where there is no GPU.
# Shorter than the recipe, since it shows that all of it runs; `make learn` shows that it learns.
export SYNTHETIC=1 QUESTIONS_PER_VIDEO=${QUESTIONS_PER_VIDEO:-8} TOTAL_STEPS=${TOTAL_STEPS:-12}
exec bash "$(dirname "${BASH_SOURCE[0]}")/framethinker_grpo.sh" "$@"
