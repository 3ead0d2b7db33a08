#!/usr/bin/env bash
# VideoZoomer, cold start (arXiv 2512.22315, 3.2): supervised fine-tuning on exemplar and reflection trajectories.
#
#   GPU machine   TRAIN_FILES=<parquet with a column `turns`> bash recipes/videozoomer_sft.sh
#   laptop        DEVICE=cpu bash recipes/videozoomer_sft.sh      # synthetic videos, scripted expert, tiny base model
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which recipes/videozoomer_grpo.sh takes as MODEL_PATH.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=videozoomer
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # table 5 of the paper, but for the learning rate: section 4.1 and the published script
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-64}
    LEARNING_RATE=${LEARNING_RATE:-5e-6}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-1}
    MAX_LENGTH=${MAX_LENGTH:-32768}
    REAL_OPTIONS=(
        # The default of LLaMA-Factory, which the published configuration keeps; verl's is 0.01.
        optim.weight_decay=0
        # The pixel envelope of videozoomer_grpo.sh.
        +data.mm_processor_kwargs.min_pixels=25088 +data.mm_processor_kwargs.max_pixels=100352)
else
    MAX_LENGTH=${MAX_LENGTH:-1536}
fi

FREEZE_VISION_TOWER=${FREEZE_VISION_TOWER:-1} # table 5; the published configuration freezes the merger, too

source "$REPO/recipes/sft.sh"
