#!/usr/bin/env bash
# Pixel Reasoner, reinforcement learning (arXiv 2505.15966): GRPO on 8 rollouts per question, with a curiosity reward.
#
#   GPU machine   MODEL_PATH=<cold-started model> TRAIN_FILES=<parquet> bash examples/papers/pixel_reasoner/pixel_reasoner_grpo.sh
#   laptop        DEVICE=cpu bash examples/papers/pixel_reasoner/pixel_reasoner_grpo.sh      # synthetic videos, tiny model
#
# Further arguments are verl options, e.g. trainer.total_training_steps=2. VVT_REPO names the checkout elsewhere.
set -euo pipefail
METHOD=pixel_reasoner
METHOD_DIR=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
AGENT_LOOPS=$METHOD_DIR/agent_loops.yaml
SFT_RECIPE=$METHOD_DIR/pixel_reasoner_sft.sh
source "${VVT_REPO:-$METHOD_DIR/../../..}/recipes/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # the published command: 512 questions in two updates, no KL
    NNODES=${NNODES:-1} # 8 in the published command; more than there are would wait for the others
    ROLLOUT_N=${ROLLOUT_N:-8}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-512}
    MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-256}
    LEARNING_RATE=${LEARNING_RATE:-1e-6}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-6144}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-16384}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-3}
    SAVE_FREQ=${SAVE_FREQ:-3}
    MAX_IMAGES=48 # 16 initial frames, and 4 selections of 8
    REAL_LENGTHS=(
        actor_rollout_ref.rollout.max_num_batched_tokens=22528
        +data.mm_processor_kwargs.min_pixels=3136 +data.mm_processor_kwargs.max_pixels=784000)
    REAL_OPTIONS=(
        actor_rollout_ref.rollout.temperature=1.0 actor_rollout_ref.rollout.top_p=0.95
        +actor_rollout_ref.rollout.custom.video_tools.pixel_reasoner.max_turn_tokens=2048)
else
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4}
    MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-1024}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-1024}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
    MAX_IMAGES=61 # 29 initial frames, and 4 selections of 8
fi
METHOD_OPTIONS=(actor_rollout_ref.actor.use_kl_loss=False actor_rollout_ref.actor.entropy_coeff=0.0)
source "$REPO/recipes/grpo.sh"
