#!/usr/bin/env bash
# A composition, reinforcement learning: a method as one YAML file of tools, grammar and rewards (docs/compose.md).
#
#   8 GPUs   MODEL_PATH=<cold-started model> TRAIN_FILES=<rows.parquet> bash recipes/compose_grpo.sh \
#                video_tools.compose.file=my.yaml
#   no GPU   bash recipes/compose_grpo.sh     # synthetic videos and a tiny model, which it makes first
#
# Arguments are options of verl, config groups, or options of `vvt train`, such as trainer.total_training_steps=2 or
# --cfg job, which prints the whole configuration. Started again, it goes on from its last checkpoint.
set -euo pipefail
PYTHON=${PYTHON:-$(ls "$(dirname "$0")/../.venv/bin/python" 2>/dev/null || command -v python3)}
exec "$PYTHON" -m verl_video_tools.cli train grpo +video_tools=compose_grpo "$@"
