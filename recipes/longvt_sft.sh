#!/usr/bin/env bash
# LongVT, cold start (arXiv 2511.20785, 4.1): supervised fine-tuning of all weights on rollouts that crop and answer.
#
#   GPU machine   TRAIN_FILES=<parquet with a column `turns`> bash recipes/longvt_sft.sh    # PRESET=published: 4 nodes
#   laptop        DEVICE=cpu bash recipes/longvt_sft.sh      # synthetic videos, scripted expert, tiny base model
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which recipes/longvt_grpo.sh takes as MODEL_PATH.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=longvt
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # the published settings, but for the batch (longvt_tuning.sh)
    MAX_STEPS=${MAX_STEPS:-3000}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-3} # ours: fewer rows than the published 247,900 end it sooner
    SAVE_FREQ=${SAVE_FREQ:-500}
fi
source "$REPO/recipes/longvt_tuning.sh"
source "$REPO/recipes/sft.sh"
