#!/usr/bin/env bash
# ParaVT, reinforcement learning (arXiv 2605.20342): GRPO on 8 rollouts per question, with frame-budget gating.
#
#   GPU machine   MODEL_PATH=<cold-started model> TRAIN_FILES=<parquet> bash examples/papers/paravt/paravt_grpo.sh
#   laptop        DEVICE=cpu bash examples/papers/paravt/paravt_grpo.sh      # synthetic videos, tiny model
#
# Further arguments are verl options, e.g. trainer.total_training_steps=2. VVT_REPO names the checkout elsewhere.
set -euo pipefail
METHOD=paravt
METHOD_DIR=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")" && pwd)
AGENT_LOOPS=$METHOD_DIR/agent_loops.yaml
SFT_RECIPE=$METHOD_DIR/paravt_sft.sh
source "${VVT_REPO:-$METHOD_DIR/../../..}/recipes/common.sh"

if [ "$SYNTHETIC" = 0 ]; then # the published configuration; 8 questions instead of 7, whose GPUs are 7 there
    NNODES=${NNODES:-1}
    ROLLOUT_N=${ROLLOUT_N:-8}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-8}
    MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-8}
    LEARNING_RATE=${LEARNING_RATE:-2e-6}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-8192}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-24576}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
    SAVE_FREQ=${SAVE_FREQ:-5}
    MAX_IMAGES=320 # 64 initial frames, and two turns of 8 crops of 16
    REAL_LENGTHS=(
        actor_rollout_ref.rollout.max_num_batched_tokens=32768
        +data.mm_processor_kwargs.min_pixels=784 +data.mm_processor_kwargs.max_pixels=50176)
    REAL_OPTIONS=(
        actor_rollout_ref.rollout.temperature=0.7
        +actor_rollout_ref.rollout.custom.video_tools.paravt.max_turn_tokens=2048)
else
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4}
    MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-512}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-1024}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
    MAX_IMAGES=264 # 8 initial frames, and two turns of 8 crops of 16
fi
METHOD_OPTIONS=(
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.01
    actor_rollout_ref.actor.kl_loss_type=low_var_kl actor_rollout_ref.actor.clip_ratio=0.2
)
source "$REPO/recipes/grpo.sh"
