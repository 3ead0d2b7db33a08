#!/usr/bin/env bash
# VideoBrain, reinforcement learning (arXiv 2602.04094): GRPO with a KL loss and a frozen vision tower.
#
#   8 GPUs      MODEL_PATH=<cold-started model> TRAIN_FILES=<rows.parquet> bash recipes/videobrain_grpo.sh
#   a cluster   RAY_ADDRESS=auto NNODES=2 MODEL_PATH=... TRAIN_FILES=... bash recipes/videobrain_grpo.sh
#   no GPU      bash recipes/videobrain_grpo.sh      # synthetic videos and a tiny model, which it makes first
#
# Arguments are options of verl, config groups, or options of `vvt train`:
#
#   trainer.total_training_steps=2       video_tools.retrieval.num_gpus=1
#   +video_tools/lora=merged_grpo        +video_tools/correction=token_tis
#   --smoke-test   --dry-run             --cfg job    # prints the whole configuration
#
# Started again, it goes on from its last checkpoint.
set -euo pipefail
PYTHON=${PYTHON:-$(ls "$(dirname "$0")/../.venv/bin/python" 2>/dev/null || command -v python3)}
exec "$PYTHON" -m verl_video_tools.cli train grpo +video_tools=videobrain_grpo "$@"
