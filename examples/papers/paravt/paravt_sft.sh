#!/usr/bin/env bash
# ParaVT, cold start: supervised fine-tuning on rollouts that make several crops in one turn and answer.
#
#   GPU machine   TRAIN_FILES=<parquet with a column `turns`> bash examples/papers/paravt/paravt_sft.sh
#   laptop        DEVICE=cpu bash examples/papers/paravt/paravt_sft.sh      # synthetic videos, scripted expert
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which paravt_grpo.sh takes as MODEL_PATH.
set -euo pipefail
METHOD=paravt
METHOD_DIR=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
AGENT_LOOPS=$METHOD_DIR/agent_loops.yaml
source "${VVT_REPO:-$METHOD_DIR/../../..}/recipes/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # ours; the pixel envelope of paravt_grpo.sh
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-32}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-1}
    LEARNING_RATE=${LEARNING_RATE:-1e-5}
    REAL_OPTIONS=(+data.mm_processor_kwargs.min_pixels=784 +data.mm_processor_kwargs.max_pixels=50176)
else
    MAX_LENGTH=${MAX_LENGTH:-1536}
fi
source "$REPO/recipes/sft.sh"
