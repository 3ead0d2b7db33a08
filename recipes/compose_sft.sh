#!/usr/bin/env bash
# A composition, cold start (docs/compose.md).
#
#   8 GPUs   TRAIN_FILES=<rows.parquet with a column `turns`> bash recipes/compose_sft.sh video_tools.compose.file=my.yaml
#   no GPU   bash recipes/compose_sft.sh     # synthetic videos, a scripted expert and a tiny model
#
# Arguments are options of verl, config groups, or options of `vvt train`, such as trainer.total_training_steps=2 or
# --cfg job, which prints the whole configuration. Ends with a Hugging Face folder, <OUTPUT_DIR>/compose_sft/huggingface.
set -euo pipefail
PYTHON=${PYTHON:-$(ls "$(dirname "$0")/../.venv/bin/python" 2>/dev/null || command -v python3)}
exec "$PYTHON" -m verl_video_tools.cli train sft +video_tools=compose_sft "$@"
