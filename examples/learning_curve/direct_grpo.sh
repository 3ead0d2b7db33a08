#!/usr/bin/env bash
# Reinforcement learning without tools on the synthetic world: what the methods are compared with (docs/learning.md).
#
#   DEVICE=cpu bash examples/learning_curve/direct_grpo.sh
#
# GRPO as FrameThinker's recipe has it, on 8 rollouts of one turn each. Further arguments are verl options.
set -euo pipefail
METHOD=direct
FOLDER=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
SFT_RECIPE=$FOLDER/direct_sft.sh
SYNTHETIC=1
source "$FOLDER/../../recipes/common.sh"

TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4}
MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}
LEARNING_RATE=${LEARNING_RATE:-1e-4}
MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-512}
MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-128}
MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
MAX_IMAGES=8
METHOD_OPTIONS=(
    actor_rollout_ref.actor.use_kl_loss=False actor_rollout_ref.actor.entropy_coeff=0.0
    actor_rollout_ref.actor.loss_agg_mode=token-mean
)

source "$REPO/recipes/grpo.sh"
