#!/usr/bin/env bash
# VideoZoomer, reinforcement learning (arXiv 2512.22315): GRPO with clip-higher and dynamic sampling on 16 rollouts per
# question.
#
#   GPU cluster   RAY_ADDRESS=auto NNODES=2 MODEL_PATH=<cold-started model> TRAIN_FILES=<parquet> bash recipes/videozoomer_grpo.sh
#   laptop        DEVICE=cpu bash recipes/videozoomer_grpo.sh      # synthetic videos, tiny model, everything else the same
#
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=videozoomer
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ULYSSES=${ULYSSES:-2}
GPU_MEMORY_UTILIZATION=${GPU_MEMORY_UTILIZATION:-0.7}
REAL_OPTIONS=()
if [ "$SYNTHETIC" = 0 ]; then # table 5 of the paper; its published script where the paper is silent
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-128}
    MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-32}
    ROLLOUT_N=${ROLLOUT_N:-16}
    LEARNING_RATE=${LEARNING_RATE:-1e-6}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-20480}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-32768} # turns and four full zooms, for which the published engine's 32768 are too few
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
    SAVE_FREQ=${SAVE_FREQ:-10}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-20}
    REAL_LENGTHS=(
        # One pixel envelope for processor and engine: 32 to 128 tokens per frame.
        +data.mm_processor_kwargs.min_pixels=25088 +data.mm_processor_kwargs.max_pixels=100352)
    MAX_IMAGES=128 # 64 of the first look and 4 x 16
else
    MAX_IMAGES=136 # 8 and 4 x 32
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4}
    MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-512}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-1024} # two full zooms
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
fi
METHOD_OPTIONS=(
    actor_rollout_ref.actor.clip_ratio_low=0.2 actor_rollout_ref.actor.clip_ratio_high=0.27
    # The published actor takes one rollout to a micro-batch: the mean over its tokens, then the mean over rollouts.
    actor_rollout_ref.actor.loss_agg_mode=seq-mean-token-mean
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001
    actor_rollout_ref.actor.kl_loss_type=low_var_kl actor_rollout_ref.actor.entropy_coeff=0.001
    # Dynamic sampling: groups whose rollouts all earn the same are replaced before the step. `reward` is the whole
    # reward, bonus and format included, as in the published code.
    algorithm.filter_groups.enable=True algorithm.filter_groups.metric=reward
)

source "$REPO/recipes/grpo.sh"
