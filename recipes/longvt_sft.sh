#!/usr/bin/env bash
# LongVT, cold start (arXiv 2511.20785, 4.1): supervised fine-tuning of all weights on rollouts that crop and answer.
#
#   GPU machine   TRAIN_FILES=<parquet with a column `turns`> bash recipes/longvt_sft.sh
#   laptop        DEVICE=cpu bash recipes/longvt_sft.sh      # synthetic videos, scripted expert, tiny base model
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which recipes/longvt_grpo.sh takes as MODEL_PATH.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# ------------------------------------------------------------------------------------------------- user-adjustable
EXPERIMENT_NAME=${EXPERIMENT_NAME:-longvt_sft}
SFT_DIR=${SFT_DIR:-$OUTPUT_DIR/$EXPERIMENT_NAME}

if [ "$SYNTHETIC" = 0 ]; then
    MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-VL-7B-Instruct}
    TRAIN_FILES=${TRAIN_FILES:?parquet file of rows with a column turns; see docs/cold-start.md}
    NNODES=${NNODES:-4}
    MAX_STEPS=${MAX_STEPS:-3000}
    SAVE_FREQ=${SAVE_FREQ:-500}
else
    OPEN_ENDED=${OPEN_ENDED:-0}
    DEMO_DIR=$DEMO_DIR/longvt
    MODEL_PATH=${MODEL_PATH:-$DEMO_DIR/base}
    TRAIN_FILES=${TRAIN_FILES:-$SFT_DIR/train.parquet}
    QUESTIONS_PER_VIDEO=${QUESTIONS_PER_VIDEO:-10} # others than reinforcement learning asks
    IMPERFECTION=${IMPERFECTION:-0.1} # how often the expert looks at a wrong place; leaves something to reinforcement learning
    DEMO_OPTIONS=(--agent-name longvt)
    [ "$OPEN_ENDED" = 0 ] || DEMO_OPTIONS+=(--open-ended)
    vvt demo --out "$DEMO_DIR" "${DEMO_OPTIONS[@]}"
    if [ "$TRAIN_FILES" = "$SFT_DIR/train.parquet" ]; then
        mkdir -p "$SFT_DIR"
        vvt data export-sft "$DEMO_DIR/train.parquet" "$TRAIN_FILES" --set max_frames=8 --set max_crop_frames=32 \
            --questions-per-video "$QUESTIONS_PER_VIDEO" --imperfection "$IMPERFECTION"
    fi
fi
source "$REPO/recipes/longvt_finetune.sh"
