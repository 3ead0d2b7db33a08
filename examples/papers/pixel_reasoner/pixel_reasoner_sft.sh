#!/usr/bin/env bash
# Pixel Reasoner, cold start: supervised fine-tuning on rollouts that select frames or crop, and answer.
#
#   GPU machine   TRAIN_FILES=<parquet with a column `turns`> bash examples/papers/pixel_reasoner/pixel_reasoner_sft.sh
#   laptop        DEVICE=cpu bash examples/papers/pixel_reasoner/pixel_reasoner_sft.sh      # synthetic videos, scripted expert
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which pixel_reasoner_grpo.sh takes as MODEL_PATH.
set -euo pipefail
METHOD=pixel_reasoner
METHOD_DIR=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
AGENT_LOOPS=$METHOD_DIR/agent_loops.yaml
source "${VVT_REPO:-$METHOD_DIR/../../..}/recipes/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # rate and epochs of the published script; the pixel envelope of pixel_reasoner_grpo.sh
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-16}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-5}
    LEARNING_RATE=${LEARNING_RATE:-1e-6}
    REAL_OPTIONS=(+data.mm_processor_kwargs.min_pixels=3136 +data.mm_processor_kwargs.max_pixels=784000)
else
    MAX_LENGTH=${MAX_LENGTH:-2048}
fi
source "$REPO/recipes/sft.sh"
