#!/usr/bin/env bash
# A composition of your own, cold start: supervised fine-tuning of all weights on rollouts in its grammar (docs/compose.md).
#
#   GPU machine   COMPOSE=<yaml> TRAIN_FILES=<parquet with a column `turns`> bash recipes/compose_sft.sh
#   laptop        DEVICE=cpu bash recipes/compose_sft.sh      # synthetic videos, scripted expert, tiny base model
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which recipes/compose_grpo.sh takes as MODEL_PATH.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=compose
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$REPO/recipes/compose.sh"

if [ "$SYNTHETIC" = 0 ]; then
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-32}
    LEARNING_RATE=${LEARNING_RATE:-1e-5}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-1}
    REAL_OPTIONS=(
        +data.video_tools.compose.file="$(quoted "$COMPOSE")"
        # The pixel envelope of compose_grpo.sh.
        +data.mm_processor_kwargs.min_pixels="${MIN_PIXELS:-784}"
        +data.mm_processor_kwargs.max_pixels="${MAX_PIXELS:-401408}")
else
    MAX_LENGTH=${MAX_LENGTH:-$((FILE_PROMPT_TOKENS + FILE_RESPONSE_TOKENS))}
    # Rows keep what was found, so training itself loads no encoder.
    [ -z "${RETRIEVAL_MODEL:-}" ] || EXPORT_OPTIONS=(--retrieval "model=$RETRIEVAL_MODEL")
fi

source "$REPO/recipes/sft.sh"
