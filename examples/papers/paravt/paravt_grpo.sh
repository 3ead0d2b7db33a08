#!/usr/bin/env bash
# ParaVT, reinforcement learning (arXiv 2605.20342): GRPO on 8 rollouts per question, with frame-budget gating.
#
#   8 GPUs   MODEL_PATH=<cold-started model> TRAIN_FILES=<rows.parquet> bash examples/papers/paravt/paravt_grpo.sh
#   no GPU   bash examples/papers/paravt/paravt_grpo.sh     # synthetic videos and a tiny model, which it makes first
#
# Arguments are options of verl, config groups, or options of `vvt train`, such as trainer.total_training_steps=2 or
# --cfg job, which prints the whole configuration.
set -euo pipefail
PYTHON=${PYTHON:-$(ls "$(dirname "$0")/../../../.venv/bin/python" 2>/dev/null || command -v python3)}
exec "$PYTHON" -m verl_video_tools.cli train grpo 'hydra.searchpath=[pkg://paravt.config]' +video_tools=paravt_grpo "$@"
