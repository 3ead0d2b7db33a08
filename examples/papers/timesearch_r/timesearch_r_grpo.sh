#!/usr/bin/env bash
# TimeSearch-R, reinforcement learning (arXiv 2511.05489): GRPO with completeness self-verification, 8 rollouts per question.
#
#   GPU machine   MODEL_PATH=<cold-started model> TRAIN_FILES=<parquet> bash timesearch_r_grpo.sh
#   laptop        DEVICE=cpu bash timesearch_r_grpo.sh      # synthetic videos, tiny model
set -euo pipefail
METHOD=timesearch_r
METHOD_DIR=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
AGENT_LOOPS=$METHOD_DIR/agent_loops.yaml
SFT_RECIPE=$METHOD_DIR/timesearch_r_sft.sh
RECIPES=${RECIPES:-$METHOD_DIR/../../../recipes} # of a checkout of verl_video_tools
source "$RECIPES/common.sh"

RETRIEVAL=actor_rollout_ref.rollout.custom.video_tools.retrieval
if [ "$SYNTHETIC" = 0 ]; then # lengths, KL and group of the published script; batch and rate are ours
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-32}
    LEARNING_RATE=${LEARNING_RATE:-1e-6}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-18000}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-16000}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
    RETRIEVAL_MODEL=${RETRIEVAL_MODEL:-google/siglip-so400m-patch14-384}
    REAL_LENGTHS=(
        +$RETRIEVAL.num_threads="${RETRIEVAL_THREADS:-16}"
        +data.mm_processor_kwargs.min_pixels=3136 +data.mm_processor_kwargs.max_pixels=200704)
else
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-512}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-768}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
    RETRIEVAL_MODEL=${RETRIEVAL_MODEL:-$DEMO_DIR/clip}
fi
MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}
MAX_IMAGES=320 # 256 of the first look and 7 searches of 8
METHOD_OPTIONS=(
    +$RETRIEVAL.model="$(quoted "$RETRIEVAL_MODEL")"
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.005
    actor_rollout_ref.actor.kl_loss_type=low_var_kl actor_rollout_ref.actor.entropy_coeff=0.0
    algorithm.norm_adv_by_std_in_grpo=False # the published script does not scale rewards
)

source "$REPO/recipes/grpo.sh"
