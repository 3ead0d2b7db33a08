#!/usr/bin/env bash
# Video-MTR (arXiv 2508.20478): GRPO on 8 rollouts per question, with a reward for single turns.
#
#   8 GPUs   MODEL_PATH=<cold-started model> TRAIN_FILES=<rows.parquet> bash examples/papers/video_mtr/video_mtr_grpo.sh
#   no GPU   bash examples/papers/video_mtr/video_mtr_grpo.sh     # synthetic videos and a tiny model, which it makes first
#
# Arguments are options of verl, config groups, or options of `vvt train`, such as trainer.total_training_steps=2 or
# --cfg job, which prints the whole configuration.
set -euo pipefail
PYTHON=${PYTHON:-$(ls "$(dirname "$0")/../../../.venv/bin/python" 2>/dev/null || command -v python3)}
exec "$PYTHON" -m verl_video_tools.cli train grpo 'hydra.searchpath=[pkg://video_mtr.config]' +video_tools=video_mtr_grpo "$@"
