#!/usr/bin/env bash
# VideoZoomer, reinforcement learning (arXiv 2512.22315): GRPO with dynamic sampling on 16 rollouts per question.
#
#   8 GPUs      MODEL_PATH=<cold-started model> TRAIN_FILES=<rows.parquet> bash recipes/videozoomer_grpo.sh
#   a cluster   RAY_ADDRESS=auto NNODES=2 MODEL_PATH=... TRAIN_FILES=... bash recipes/videozoomer_grpo.sh
#   no GPU      bash recipes/videozoomer_grpo.sh      # synthetic videos and a tiny model, which it makes first
#
# Arguments are options of verl, config groups, or options of `vvt train`:
#
#   trainer.total_training_steps=2       video_tools.videozoomer.tool_bonus=0
#   +video_tools/lora=merged_grpo        +video_tools/correction=token_tis
#   --smoke-test   --dry-run             --cfg job    # prints the whole configuration
#
# Started again, it goes on from its last checkpoint.
set -euo pipefail
PYTHON=${PYTHON:-$(ls "$(dirname "$0")/../.venv/bin/python" 2>/dev/null || command -v python3)}
exec "$PYTHON" -m verl_video_tools.cli train grpo +video_tools=videozoomer_grpo "$@"
