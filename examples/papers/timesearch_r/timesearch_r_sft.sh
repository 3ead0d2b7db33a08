#!/usr/bin/env bash
# TimeSearch-R, cold start: supervised fine-tuning on rollouts that search and answer.
#
#   GPU machine   TRAIN_FILES=<parquet with a column `turns`> bash timesearch_r_sft.sh
#   laptop        DEVICE=cpu bash timesearch_r_sft.sh      # synthetic videos, scripted expert, tiny base model
set -euo pipefail
METHOD=timesearch_r
METHOD_DIR=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
RECIPES=${RECIPES:-$METHOD_DIR/../../../recipes} # of a checkout of verl_video_tools
source "$RECIPES/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # ours
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-32}
    LEARNING_RATE=${LEARNING_RATE:-1e-5}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-1}
    MAX_LENGTH=${MAX_LENGTH:-34000}
    REAL_OPTIONS=(+data.mm_processor_kwargs.min_pixels=3136 +data.mm_processor_kwargs.max_pixels=200704)
else
    EXPORT_OPTIONS=(--retrieval "model=$DEMO_DIR/clip")
fi

source "$REPO/recipes/sft.sh"
