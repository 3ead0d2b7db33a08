#!/usr/bin/env bash
# VideoBrain, reinforcement learning (arXiv 2602.04094, 3.3): GRPO with a KL loss on 8 rollouts per classified question.
#
#   GPU machine   MODEL_PATH=<cold-started model> TRAIN_FILES=<parquet> bash recipes/videobrain_grpo.sh
#   laptop        DEVICE=cpu bash recipes/videobrain_grpo.sh      # synthetic videos, tiny model, everything else the same
#
# Made for Qwen3-VL-8B; a Qwen2.5-VL takes the same settings (the tiny one: BASE_FAMILY=qwen2_5_vl). Open questions need a
# judge (docs/judge.md).
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=videobrain
BASE_FAMILY=${BASE_FAMILY:-qwen3_vl}
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

RETRIEVAL=actor_rollout_ref.rollout.custom.video_tools.retrieval
ULYSSES=${ULYSSES:-2}
GPU_MEMORY_UTILIZATION=${GPU_MEMORY_UTILIZATION:-0.75}
REAL_OPTIONS=(actor_rollout_ref.rollout.enable_chunked_prefill=True)
if [ "$SYNTHETIC" = 0 ]; then # the published script
    MODEL_PATH=${MODEL_PATH:-Qwen/Qwen3-VL-8B-Instruct}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-32}
    LEARNING_RATE=${LEARNING_RATE:-1e-6}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-8192}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-16384}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-2}
    SAVE_FREQ=${SAVE_FREQ:-10}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-1}
    # The encoder of the paper; the published script has OpenAI's CLIP ViT-B/16.
    RETRIEVAL_MODEL=${RETRIEVAL_MODEL:-google/siglip2-base-patch16-224}
    REAL_LENGTHS=(
        # Ours: on CPUs queries wait for the encoder, and one that is late keeps its rollout out of training
        # (docs/retrieval.md). With a GPU of its own, +$RETRIEVAL.num_gpus=1, it does not matter.
        +$RETRIEVAL.num_threads="${RETRIEVAL_THREADS:-16}"
        # One pixel envelope for processor and engine: from 4 tokens of 32 x 32 to a frame of the method's box.
        +data.mm_processor_kwargs.min_pixels=4096 +data.mm_processor_kwargs.max_pixels=235200)
else
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-512}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-768}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
    RETRIEVAL_MODEL=${RETRIEVAL_MODEL:-$DEMO_DIR/clip}
fi
MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}
FREEZE_VISION_TOWER=${FREEZE_VISION_TOWER:-1} # the published script
MAX_IMAGES=56 # 16 of the first look and 5 x 8
METHOD_OPTIONS=(
    +$RETRIEVAL.model="$(quoted "$RETRIEVAL_MODEL")"
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001
    actor_rollout_ref.actor.kl_loss_type=low_var_kl actor_rollout_ref.actor.entropy_coeff=0.001
    # The published script leaves verl's default: all tokens alike. Its verl took the mean of two rollouts at a time.
    actor_rollout_ref.actor.loss_agg_mode=token-mean
)

source "$REPO/recipes/grpo.sh"
