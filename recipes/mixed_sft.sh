#!/usr/bin/env bash
# Cold start of all five methods at once.
#
#   8 GPUs          TRAIN_FILES=<rows.parquet with a column `turns`> bash recipes/mixed_sft.sh
#   several nodes   NNODES=2 NODE_RANK=0 MASTER_ADDR=<node 0> TRAIN_FILES=... bash recipes/mixed_sft.sh     # on each node
#   no GPU          bash recipes/mixed_sft.sh   # synthetic videos, a scripted expert and a tiny model
#
# Arguments are options of verl, config groups, or options of `vvt train`, such as trainer.total_training_steps=2 or
# --cfg job, which prints the whole configuration. Ends with a Hugging Face folder, <OUTPUT_DIR>/mixed_sft/huggingface.
# Started again, it goes on from its last checkpoint.
set -euo pipefail
PYTHON=${PYTHON:-$(ls "$(dirname "$0")/../.venv/bin/python" 2>/dev/null || command -v python3)}
exec "$PYTHON" -m verl_video_tools.cli train sft +video_tools=mixed_sft "$@"
