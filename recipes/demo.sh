#!/usr/bin/env bash
# `make demo`: synthetic videos, SFT cold start, then a real GRPO run of FrameThinker; on a CPU where there is no GPU.
# Shorter than the recipe, since it shows that all of it runs; `make learn` shows that it learns.
set -euo pipefail
exec bash "$(dirname "$0")/framethinker_grpo.sh" --synthetic video_tools.demo.questions_per_video=8 \
    trainer.total_training_steps=12 "$@"
