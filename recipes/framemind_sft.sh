#!/usr/bin/env bash
# FrameMind, cold start. The paper has none: this one teaches the tiny model of the synthetic world the grammar, or any
# other model that does not follow the prompt.
#
#   GPU machine   TRAIN_FILES=<parquet with a column `turns`> bash recipes/framemind_sft.sh
#   laptop        DEVICE=cpu bash recipes/framemind_sft.sh      # synthetic videos, scripted expert, tiny base model
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which recipes/framemind_grpo.sh takes as MODEL_PATH.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=framemind
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # ours, all of it
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-64}
    LEARNING_RATE=${LEARNING_RATE:-1e-5}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-1}
    MAX_LENGTH=${MAX_LENGTH:-28672}
    # The pixel envelope of framemind_grpo.sh.
    REAL_OPTIONS=(+data.mm_processor_kwargs.min_pixels=50176 +data.mm_processor_kwargs.max_pixels=200704)
else
    MAX_LENGTH=${MAX_LENGTH:-1664}
    # The first look is that of validation.
fi

source "$REPO/recipes/sft.sh"
