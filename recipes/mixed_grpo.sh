#!/usr/bin/env bash
# Several methods in one run: one policy trains on rows of all five, each with its own loop, tools, prompt and reward.
#
#   GPU cluster   RAY_ADDRESS=auto NNODES=4 MODEL_PATH=<cold-started model> TRAIN_FILES=<parquet> bash recipes/mixed_grpo.sh
#   laptop        DEVICE=cpu bash recipes/mixed_grpo.sh      # synthetic videos, tiny model, everything else the same
#
# A row's agent_name names its method; METHODS below only says which ones the synthetic rows name. What a run can have
# only once (optimiser, KL, clipping, sampling) is listed with its sources in docs/mixed.md.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=mixed
PLAN_METHOD=longvt # shows the most
METHODS=(framethinker videozoomer longvt videobrain framemind)
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

ROLLOUT_N=${ROLLOUT_N:-8} # FrameThinker, VideoBrain, FrameMind; a FrameMind group has so many rungs
ULYSSES=${ULYSSES:-4}
GPU_MEMORY_UTILIZATION=${GPU_MEMORY_UTILIZATION:-0.7}
REAL_OPTIONS=()
if [ "$SYNTHETIC" = 0 ]; then
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-32}          # FrameThinker, VideoBrain
    LEARNING_RATE=${LEARNING_RATE:-1e-6}              # all but FrameThinker
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-40960}     # the longest: LongVT's
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-32768} # the longest: VideoZoomer's
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
    MAX_BATCHED_TOKENS=${MAX_BATCHED_TOKENS:-73728}
    MAX_IMAGES=1152 # LongVT's
    RETRIEVAL_MODEL=${RETRIEVAL_MODEL:-google/siglip2-base-patch16-224} # VideoBrain's
    REAL_LENGTHS=(
        # As in videobrain_grpo.sh.
        +actor_rollout_ref.rollout.custom.video_tools.retrieval.num_threads="${RETRIEVAL_THREADS:-16}"
        # One pixel envelope that holds those of all methods.
        +data.mm_processor_kwargs.min_pixels=784 +data.mm_processor_kwargs.max_pixels=235200)
else
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-5} # rows name the methods in turn: a group of each in every step
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-512}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-1152}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
    MAX_IMAGES=136
    RETRIEVAL_MODEL=${RETRIEVAL_MODEL:-$DEMO_DIR/clip}
    SYNTHETIC_OPTIONS=(data.shuffle=False)
fi
MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}
METHOD_OPTIONS=(
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001
    actor_rollout_ref.actor.kl_loss_type=low_var_kl actor_rollout_ref.actor.entropy_coeff=0.0
    actor_rollout_ref.actor.loss_agg_mode=token-mean # one for the run: that of three of the five methods
    +actor_rollout_ref.rollout.custom.video_tools.retrieval.model="$(quoted "$RETRIEVAL_MODEL")"
)

source "$REPO/recipes/grpo.sh"
