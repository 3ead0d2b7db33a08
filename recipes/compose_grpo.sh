#!/usr/bin/env bash
# A composition of your own, reinforcement learning: GRPO with a KL loss on 8 rollouts per question (docs/compose.md).
#
#   GPU machine   COMPOSE=<yaml> MODEL_PATH=<model> TRAIN_FILES=<parquet> bash recipes/compose_grpo.sh
#   laptop        DEVICE=cpu bash recipes/compose_grpo.sh     # synthetic videos, tiny model, a small composition
#
# COMPOSE is a YAML file or the name of a packaged composition, such as default; prompt, response and images have the lengths
# of its key `limits`. Without a GPU it has to be small (the packaged `demo` is), and its tools have to be those that the
# scripted expert knows (docs/compose.md). Searching by text needs RETRIEVAL_MODEL, open questions a judge (docs/judge.md).
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=compose
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"
source "$REPO/recipes/compose.sh"

MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-$FILE_PROMPT_TOKENS}
MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-$FILE_RESPONSE_TOKENS}
MAX_IMAGES=${MAX_IMAGES:-$FILE_IMAGES}
PLAN_OPTIONS=(--set "file=$COMPOSE")
REAL_OPTIONS=()
if [ "$SYNTHETIC" = 0 ]; then
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-16}
    LEARNING_RATE=${LEARNING_RATE:-1e-6}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
    REAL_LENGTHS=(
        +actor_rollout_ref.rollout.custom.video_tools.compose.file="$(quoted "$COMPOSE")"
        # One pixel envelope for processor and engine; frames of the composition lie within it.
        +data.mm_processor_kwargs.min_pixels="${MIN_PIXELS:-784}"
        +data.mm_processor_kwargs.max_pixels="${MAX_PIXELS:-401408}")
else
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
fi
MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}
METHOD_OPTIONS=(
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001
    actor_rollout_ref.actor.kl_loss_type=low_var_kl actor_rollout_ref.actor.entropy_coeff=0.0
    actor_rollout_ref.actor.loss_agg_mode=token-mean
)
[ -z "${RETRIEVAL_MODEL:-}" ] || METHOD_OPTIONS+=(
    +actor_rollout_ref.rollout.custom.video_tools.retrieval.model="$(quoted "$RETRIEVAL_MODEL")")

source "$REPO/recipes/grpo.sh"
