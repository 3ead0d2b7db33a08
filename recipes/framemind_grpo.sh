#!/usr/bin/env bash
# FrameMind, reinforcement learning (arXiv 2509.24008): DRFS-GRPO, whose 8 rollouts of a question see the video on 8
# rungs of a ladder of frame numbers and resolutions; the advantage is the reward less the group's mean.
#
#   GPU machine   TRAIN_FILES=<parquet> bash recipes/framemind_grpo.sh
#   laptop        DEVICE=cpu bash recipes/framemind_grpo.sh      # synthetic videos, tiny model, everything else the same
#   baseline      BASELINE=1 ... bash recipes/framemind_grpo.sh  # the paper's ablation: 32 frames for every rollout
#
# The paper trains without a cold start; only the synthetic world's tiny model gets one. Open questions need a judge
# (docs/judge.md). Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from
# its checkpoint.
set -euo pipefail
METHOD=framemind
BASELINE=${BASELINE:-0}
[ "$BASELINE" = 0 ] || EXPERIMENT_NAME=${EXPERIMENT_NAME:-framemind_fixed32_grpo}
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

FRAMEMIND=actor_rollout_ref.rollout.custom.video_tools.framemind
ROLLOUT_N=${ROLLOUT_N:-8}
ULYSSES=${ULYSSES:-2} # ours: table E1 has 1, and batches filled by tokens
GPU_MEMORY_UTILIZATION=${GPU_MEMORY_UTILIZATION:-0.7}
REAL_OPTIONS=(
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu="${ACTOR_MICRO_BATCH_SIZE:-2}"
    actor_rollout_ref.actor.fsdp_config.param_offload=False actor_rollout_ref.actor.fsdp_config.optimizer_offload=False)
if [ "$SYNTHETIC" = 0 ]; then # table E1 of the paper; marked as ours where it is silent
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-64} # ours: one update per step
    MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-64}
    LEARNING_RATE=${LEARNING_RATE:-1e-6}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-12288}     # ours: the dearest rung takes 8,900 tokens with its labels
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-16384} # ours: turns and two full clips of 5,500 tokens each
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
    ROLLOUT_TP=${ROLLOUT_TP:-4}
    MAX_BATCHED_TOKENS=${MAX_BATCHED_TOKENS:-65536}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-1} # ours
    MAX_IMAGES=128                  # ours: 64 and two clips of 20 are more than the 100 of the table and the 50 of the text
    REAL_LENGTHS=(
        # One pixel envelope for processor and engine: 64 to 256 tokens per frame.
        +data.mm_processor_kwargs.min_pixels=50176 +data.mm_processor_kwargs.max_pixels=200704)
    [ "$BASELINE" = 0 ] || REAL_LENGTHS+=("+$FRAMEMIND.low=[32,448]")
else
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4}
    MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}
    LEARNING_RATE=${LEARNING_RATE:-1e-4}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-512}
    MAX_RESPONSE_LENGTH=${MAX_RESPONSE_LENGTH:-1152}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-8}
    MAX_IMAGES=48 # 8 and two clips of 20
    [ "$BASELINE" = 0 ] || SYNTHETIC_OPTIONS=("++$FRAMEMIND.low=[4,112]")
fi
METHOD_OPTIONS=(
    algorithm.norm_adv_by_std_in_grpo=False # algorithm 1 of the paper: reward less mean
    actor_rollout_ref.actor.use_kl_loss=True actor_rollout_ref.actor.kl_loss_coef=0.001
    actor_rollout_ref.actor.kl_loss_type=low_var_kl
    actor_rollout_ref.actor.entropy_coeff=0.0 # ours
    # Ours: those of EasyR1, on which the paper builds. The paper's equation 4 is loss_agg_mode=seq-mean-token-sum.
    actor_rollout_ref.actor.loss_agg_mode=token-mean actor_rollout_ref.actor.clip_ratio_low=0.2
    actor_rollout_ref.actor.clip_ratio_high=0.3 actor_rollout_ref.actor.clip_ratio_c=3.0
    actor_rollout_ref.actor.optim.weight_decay=0.01 actor_rollout_ref.actor.optim.clip_grad=1.0
    actor_rollout_ref.rollout.temperature=0.7 actor_rollout_ref.rollout.top_p=0.9
    actor_rollout_ref.rollout.val_kwargs.temperature=0.01 actor_rollout_ref.rollout.val_kwargs.top_p=0.95
    actor_rollout_ref.rollout.val_kwargs.do_sample=True actor_rollout_ref.rollout.val_kwargs.n=1
    actor_rollout_ref.rollout.enable_chunked_prefill=False
)

source "$REPO/recipes/grpo.sh"
