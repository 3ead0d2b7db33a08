#!/usr/bin/env bash
# FrameThinker, reinforcement learning (arXiv 2509.24304): GRPO without KL on 8 rollouts per question.
#
#   GPU cluster   MODEL_PATH=<cold-started model> TRAIN_FILES=<parquet> VAL_FILES=<parquet> NNODES=2 bash recipes/framethinker_grpo.sh
#   laptop        DEVICE=cpu bash recipes/framethinker_grpo.sh      # synthetic videos, tiny model, everything else the same
#
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# ------------------------------------------------------------------------------------------------- user-adjustable
PROJECT_NAME=${PROJECT_NAME:-verl_video_tools}
EXPERIMENT_NAME=${EXPERIMENT_NAME:-framethinker_grpo}
RUN_DIR=${RUN_DIR:-$OUTPUT_DIR/$EXPERIMENT_NAME}
ROLLOUT_TP=${ROLLOUT_TP:-1}
ROLLOUT_N=${ROLLOUT_N:-8}
LOGGER=${LOGGER:-'["console"]'}

if [ "$SYNTHETIC" = 0 ]; then # the paper's large-scale setting; its published script where the paper is silent
    MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-VL-7B-Instruct}
    TRAIN_FILES=${TRAIN_FILES:?parquet file of rows; see docs/methods/framethinker.md}
    VAL_FILES=${VAL_FILES:-$TRAIN_FILES}
    NNODES=${NNODES:-1}
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-8}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-32}
    LEARNING_RATE=${LEARNING_RATE:-5e-7}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-8192}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-8192}
    MAX_MODEL_LEN=${MAX_MODEL_LEN:-32768}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-2}
    SAVE_FREQ=${SAVE_FREQ:-50}
    TOTAL_STEPS=${TOTAL_STEPS:-null}
    SETTING_OPTIONS=(
        actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
        actor_rollout_ref.rollout.gpu_memory_utilization=0.6 actor_rollout_ref.rollout.max_num_batched_tokens=32768
        # One pixel envelope for processor and engine: the larger of the method's boxes, in multiples of 28.
        +data.mm_processor_kwargs.min_pixels=3136 +data.mm_processor_kwargs.max_pixels=235200)
else # the synthetic world: 56x56 frames of 4 tokens each
    SFT_DIR=${SFT_DIR:-$OUTPUT_DIR/framethinker_sft}
    MODEL_PATH=${MODEL_PATH:-$SFT_DIR/huggingface}
    TRAIN_FILES=${TRAIN_FILES:-$DEMO_DIR/train.parquet}
    VAL_FILES=${VAL_FILES:-$DEMO_DIR/test.parquet}
    NNODES=${NNODES:-1}
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-1}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-512}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-512}
    MAX_MODEL_LEN=${MAX_MODEL_LEN:-1024}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
    SAVE_FREQ=${SAVE_FREQ:-20}
    TOTAL_STEPS=${TOTAL_STEPS:-20}
    SETTING_OPTIONS=(
        # Whole weights in float32 beside the shards; verl's merger would round them to bfloat16.
        actor_rollout_ref.actor.checkpoint.save_contents='[model,optimizer,extra,hf_model]'
        # The tiny model's own short prompt, and turns no longer than it ever needs.
        +actor_rollout_ref.rollout.custom.video_tools.framethinker.prompt_file="$DEMO_DIR/prompts/framethinker.txt"
        +actor_rollout_ref.rollout.custom.video_tools.framethinker.max_turn_tokens=96)
    vvt demo --out "$DEMO_DIR"
    if [ ! -f "$MODEL_PATH/config.json" ]; then
        [ "$MODEL_PATH" = "$SFT_DIR/huggingface" ] || { echo "MODEL_PATH=$MODEL_PATH holds no model" >&2; exit 2; }
        SFT_DIR=$SFT_DIR DEMO_DIR=$DEMO_DIR bash "$REPO/recipes/framethinker_sft.sh"
    fi
fi

# ----------------------------------------------------------------------------------------------------- fixed by method
METHOD=framethinker
LIMIT_IMAGES=60 # 12 frames x (first look + 4 calls)
METHOD_OPTIONS=()
source "$REPO/recipes/grpo.sh"
