#!/usr/bin/env bash
# Video-MTR, cold start: fine-tuning on rollouts that crop and answer.
#
#   8 GPUs   TRAIN_FILES=<rows.parquet with a column `turns`> bash examples/papers/video_mtr/video_mtr_sft.sh
#   no GPU   bash examples/papers/video_mtr/video_mtr_sft.sh     # synthetic videos, a scripted expert and a tiny model
#
# Arguments are options of verl, config groups, or options of `vvt train`, such as trainer.total_training_steps=2 or
# --cfg job, which prints the whole configuration. Ends with a Hugging Face folder,
# <OUTPUT_DIR>/video_mtr_sft/huggingface.
set -euo pipefail
PYTHON=${PYTHON:-$(ls "$(dirname "$0")/../../../.venv/bin/python" 2>/dev/null || command -v python3)}
exec "$PYTHON" -m verl_video_tools.cli train sft 'hydra.searchpath=[pkg://video_mtr.config]' +video_tools=video_mtr_sft "$@"
