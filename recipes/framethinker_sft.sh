#!/usr/bin/env bash
# FrameThinker, cold start (arXiv 2509.24304, 3.2 and F.2): supervised fine-tuning on trajectories of the five templates.
#
#   GPU machine   TRAIN_FILES=<parquet with a column `turns`> bash recipes/framethinker_sft.sh
#   laptop        DEVICE=cpu bash recipes/framethinker_sft.sh      # synthetic videos, scripted expert, tiny base model
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which recipes/framethinker_grpo.sh takes as MODEL_PATH.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=framethinker
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # the paper's setting; LoRA alpha, epochs, length and weight decay are ours: it names none
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-32}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    LORA_RANK=${LORA_RANK:-8}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-3}
    # The pixel envelope of framethinker_grpo.sh.
    REAL_OPTIONS=(+data.mm_processor_kwargs.min_pixels=3136 +data.mm_processor_kwargs.max_pixels=235200)
fi

source "$REPO/recipes/sft.sh"
