#!/usr/bin/env bash
# LongVT, reinforcement learning (arXiv 2511.20785, 4.2): GRPO with a KL loss on 16 rollouts per question.
#
#   GPU cluster   MODEL_PATH=<cold-started model> TRAIN_FILES=<parquet> VAL_FILES=<parquet> NNODES=8 bash recipes/longvt_grpo.sh
#   laptop        DEVICE=cpu bash recipes/longvt_grpo.sh      # synthetic videos, tiny model, everything else the same
#
# Open questions need a judge. The synthetic ones are multiple-choice, unless OPEN_ENDED=1.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# ------------------------------------------------------------------------------------------------- user-adjustable
PROJECT_NAME=${PROJECT_NAME:-verl_video_tools}
EXPERIMENT_NAME=${EXPERIMENT_NAME:-longvt_grpo}
RUN_DIR=${RUN_DIR:-$OUTPUT_DIR/$EXPERIMENT_NAME}
ROLLOUT_TP=${ROLLOUT_TP:-1}
LOGGER=${LOGGER:-'["console"]'}

if [ "$SYNTHETIC" = 0 ]; then # the published script; 40,960 tokens of prompt instead of 36,000, for the frames' times
    MODEL_PATH=${MODEL_PATH:?cold-started model; see recipes/longvt_sft.sh}
    TRAIN_FILES=${TRAIN_FILES:?parquet file of rows; see docs/methods/longvt.md}
    VAL_FILES=${VAL_FILES:-$TRAIN_FILES}
    NNODES=${NNODES:-8}
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-8}
    ROLLOUT_N=${ROLLOUT_N:-16}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-16}
    MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-8}
    LEARNING_RATE=${LEARNING_RATE:-1e-6}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-40960}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-16384}
    MAX_MODEL_LEN=${MAX_MODEL_LEN:-57344}
    LIMIT_IMAGES=${LIMIT_IMAGES:-1152} # 512 of the first look, 5 crops of 128
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
    SAVE_FREQ=${SAVE_FREQ:-10}
    TOTAL_STEPS=${TOTAL_STEPS:-null}
    SETTING_OPTIONS=(
        actor_rollout_ref.actor.ulysses_sequence_parallel_size=4
        actor_rollout_ref.rollout.gpu_memory_utilization=0.4 actor_rollout_ref.rollout.max_num_batched_tokens=57344
        trainer.total_epochs=5
        +data.mm_processor_kwargs.min_pixels=784 +data.mm_processor_kwargs.max_pixels=50176)
else # the synthetic world: 56x56 frames of 4 tokens each, a first look of 8 so that most events stay hidden
    OPEN_ENDED=${OPEN_ENDED:-0}
    DEMO_DIR=$DEMO_DIR/longvt
    SFT_DIR=${SFT_DIR:-$OUTPUT_DIR/longvt_sft}
    MODEL_PATH=${MODEL_PATH:-$SFT_DIR/huggingface}
    TRAIN_FILES=${TRAIN_FILES:-$DEMO_DIR/train.parquet}
    VAL_FILES=${VAL_FILES:-$DEMO_DIR/test.parquet}
    NNODES=${NNODES:-1}
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-1}
    ROLLOUT_N=${ROLLOUT_N:-8}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-512}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-768}
    MAX_MODEL_LEN=${MAX_MODEL_LEN:-1280}
    LIMIT_IMAGES=${LIMIT_IMAGES:-136} # 8 of the first look, 4 crops of 32
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
    SAVE_FREQ=${SAVE_FREQ:-20}
    TOTAL_STEPS=${TOTAL_STEPS:-20}
    FIELDS=actor_rollout_ref.rollout.custom.video_tools.longvt
    SETTING_OPTIONS=(
        # Whole weights in float32 beside the shards; verl's merger would round them to bfloat16.
        actor_rollout_ref.actor.checkpoint.save_contents='[model,optimizer,extra,hf_model]'
        # The tiny model's own short prompt and looks, and turns no longer than it ever needs.
        +$FIELDS.prompt_file="$DEMO_DIR/prompts/longvt.txt" +$FIELDS.max_turn_tokens=128
        +$FIELDS.max_frames=8 +$FIELDS.max_crop_frames=32)
    DEMO_OPTIONS=(--agent-name longvt)
    [ "$OPEN_ENDED" = 0 ] || DEMO_OPTIONS+=(--open-ended)
    vvt demo --out "$DEMO_DIR" "${DEMO_OPTIONS[@]}"
    if [ ! -f "$MODEL_PATH/config.json" ]; then
        [ "$MODEL_PATH" = "$SFT_DIR/huggingface" ] || { echo "MODEL_PATH=$MODEL_PATH holds no model" >&2; exit 2; }
        SFT_DIR=$SFT_DIR DEMO_DIR=${DEMO_DIR%/longvt} OPEN_ENDED=$OPEN_ENDED bash "$REPO/recipes/longvt_sft.sh"
    fi
fi

# ----------------------------------------------------------------------------------------------------- fixed by method
METHOD=longvt
METHOD_OPTIONS=(
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001
    actor_rollout_ref.actor.kl_loss_type=low_var_kl
)
source "$REPO/recipes/grpo.sh"
