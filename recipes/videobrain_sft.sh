#!/usr/bin/env bash
# VideoBrain, cold start (arXiv 2602.04094, 3.3): supervised fine-tuning on a teacher's rollouts for adaptive and active
# questions.
#
#   GPU machine   TRAIN_FILES=<parquet with a column `turns`> bash recipes/videobrain_sft.sh
#   laptop        DEVICE=cpu bash recipes/videobrain_sft.sh      # synthetic videos, scripted expert, tiny base model
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which recipes/videobrain_grpo.sh takes as MODEL_PATH.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=videobrain
BASE_FAMILY=${BASE_FAMILY:-qwen3_vl}
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # one epoch (paper 4.1); the other settings are ours, neither paper nor code names any
    MODEL_PATH=${MODEL_PATH:-Qwen/Qwen3-VL-8B-Instruct}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-32}
    LEARNING_RATE=${LEARNING_RATE:-1e-5}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-1}
    MAX_LENGTH=${MAX_LENGTH:-24576}
    # The pixel envelope of videobrain_grpo.sh.
    REAL_OPTIONS=(+data.mm_processor_kwargs.min_pixels=4096 +data.mm_processor_kwargs.max_pixels=235200)
else
    # An encoder that knows the things of this world. Rows keep what it found, so training itself loads none.
    EXPORT_OPTIONS=(--retrieval "model=$DEMO_DIR/clip")
fi

FREEZE_VISION_TOWER=${FREEZE_VISION_TOWER:-1} # ours: as in the reinforcement learning that follows

source "$REPO/recipes/sft.sh"
