#!/usr/bin/env bash
# Several methods in one cold start: supervised fine-tuning on rollouts of all five grammars.
#
#   GPU machine   TRAIN_FILES='[a.parquet,b.parquet]' bash recipes/mixed_sft.sh      # files with a column `turns`
#   laptop        DEVICE=cpu bash recipes/mixed_sft.sh      # synthetic videos, scripted experts, tiny base model
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which recipes/mixed_grpo.sh takes as MODEL_PATH.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=mixed
METHODS=(framethinker videozoomer longvt videobrain framemind)
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # ours: no paper trains several methods
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-64}
    LEARNING_RATE=${LEARNING_RATE:-1e-5}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-1}
    MAX_LENGTH=${MAX_LENGTH:-57344}
    # As in longvt_tuning.sh: one of 8 GPUs does not hold such a sequence alone.
    ULYSSES=${ULYSSES:-$((${NNODES:-1} * ${NDEVICES_PER_NODE:-8} % 2 ? 1 : 2))}
    # The pixel envelope of mixed_grpo.sh.
    REAL_OPTIONS=(+data.mm_processor_kwargs.min_pixels=784 +data.mm_processor_kwargs.max_pixels=235200)
else
    MAX_LENGTH=${MAX_LENGTH:-1664}
    QUESTIONS_PER_VIDEO=${QUESTIONS_PER_VIDEO:-15} # five methods share them
    EXPORT_OPTIONS=(--retrieval "model=$DEMO_DIR/clip")
fi

source "$REPO/recipes/sft.sh"
