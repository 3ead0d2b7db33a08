#!/usr/bin/env bash
# FrameThinker, cold start (arXiv 2509.24304, 3.2 and F.2): supervised fine-tuning on trajectories of the five templates.
#
#   GPU machine   TRAIN_FILES=<parquet with a column `turns`> bash recipes/framethinker_sft.sh
#   laptop        DEVICE=cpu bash recipes/framethinker_sft.sh      # synthetic videos, scripted expert, tiny base model
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which recipes/framethinker_grpo.sh takes as MODEL_PATH.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# ------------------------------------------------------------------------------------------------- user-adjustable
PROJECT_NAME=${PROJECT_NAME:-verl_video_tools}
EXPERIMENT_NAME=${EXPERIMENT_NAME:-framethinker_sft}
SFT_DIR=${SFT_DIR:-$OUTPUT_DIR/$EXPERIMENT_NAME}
LOGGER=${LOGGER:-'["console"]'}

if [ "$SYNTHETIC" = 0 ]; then # the paper's setting; LoRA alpha and epochs are ours, it names neither
    MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-VL-7B-Instruct}
    TRAIN_FILES=${TRAIN_FILES:?parquet file of rows with a column turns; see docs/cold-start.md}
    NNODES=${NNODES:-1}
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-8}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-32}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    WARMUP_RATIO=${WARMUP_RATIO:-0.1}
    LORA_RANK=${LORA_RANK:-8}
    LORA_ALPHA=${LORA_ALPHA:-16}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-3}
    MAX_LENGTH=${MAX_LENGTH:-16384}
    NUM_WORKERS=${NUM_WORKERS:-8}
    SETTING_OPTIONS=(
        # The pixel envelope of framethinker_grpo.sh.
        +data.mm_processor_kwargs.min_pixels=3136 +data.mm_processor_kwargs.max_pixels=235200)
else # the synthetic world: 56x56 frames of 4 tokens each
    MODEL_PATH=${MODEL_PATH:-$DEMO_DIR/base}
    TRAIN_FILES=${TRAIN_FILES:-$SFT_DIR/train.parquet}
    PROMPT_FILE=${PROMPT_FILE:-$DEMO_DIR/prompts/framethinker.txt}
    NNODES=${NNODES:-1}
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-1}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-16}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-4} # small, since a batch is padded to its longest row
    LEARNING_RATE=${LEARNING_RATE:-3e-3}
    WARMUP_RATIO=${WARMUP_RATIO:-0.05}
    LORA_RANK=${LORA_RANK:-0}
    LORA_ALPHA=${LORA_ALPHA:-16}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-2}
    MAX_LENGTH=${MAX_LENGTH:-1024}
    NUM_WORKERS=${NUM_WORKERS:-0} # decoded rows stay in the trainer's memory from epoch to epoch
    QUESTIONS_PER_VIDEO=${QUESTIONS_PER_VIDEO:-10} # others than reinforcement learning asks
    IMPERFECTION=${IMPERFECTION:-0.1} # how often the expert looks at a wrong place; leaves something to reinforcement learning
    SETTING_OPTIONS=(+data.video_tools.framethinker.prompt_file="$PROMPT_FILE") # the tiny model's own short prompt
    # Whole weights in float32; verl's merger would round them. With LoRA they would come with the adapter's names.
    [ "$LORA_RANK" != 0 ] || SETTING_OPTIONS+=(checkpoint.save_contents='[model,optimizer,extra,hf_model]')
    vvt demo --out "$DEMO_DIR"
    if [ "$TRAIN_FILES" = "$SFT_DIR/train.parquet" ]; then
        mkdir -p "$SFT_DIR"
        vvt data export-sft "$DEMO_DIR/train.parquet" "$TRAIN_FILES" \
            --questions-per-video "$QUESTIONS_PER_VIDEO" --imperfection "$IMPERFECTION"
    fi
fi

source "$REPO/recipes/sft.sh"
