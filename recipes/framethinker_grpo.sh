#!/usr/bin/env bash
# FrameThinker, reinforcement learning (arXiv 2509.24304): GRPO without KL on 8 rollouts per question.
#
#   GPU cluster   RAY_ADDRESS=auto NNODES=2 MODEL_PATH=<cold-started model> TRAIN_FILES=<parquet> bash recipes/framethinker_grpo.sh
#   laptop        DEVICE=cpu bash recipes/framethinker_grpo.sh      # synthetic videos, tiny model, everything else the same
#
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=framethinker
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # the paper's large-scale setting; its published script where the paper is silent
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-32}
    LEARNING_RATE=${LEARNING_RATE:-5e-7}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-8192}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-8192}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-2}
    # One pixel envelope for processor and engine: the larger of the method's boxes, in multiples of 28.
    REAL_LENGTHS=(+data.mm_processor_kwargs.min_pixels=3136 +data.mm_processor_kwargs.max_pixels=235200)
else
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-512}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-512}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
fi
MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}
MAX_IMAGES=60 # 12 frames x (first look + 4 calls)
METHOD_OPTIONS=(
    actor_rollout_ref.actor.use_kl_loss=False actor_rollout_ref.actor.entropy_coeff=0.0
    # The published script leaves verl's default: all tokens alike. Its verl took the mean of two rollouts at a time.
    actor_rollout_ref.actor.loss_agg_mode=token-mean
)

source "$REPO/recipes/grpo.sh"
