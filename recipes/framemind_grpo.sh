#!/usr/bin/env bash
# FrameMind, reinforcement learning (arXiv 2509.24008): every rollout of a group sees another rung of a resolution ladder.
#
#   8 GPUs      MODEL_PATH=<cold-started model> TRAIN_FILES=<rows.parquet> bash recipes/framemind_grpo.sh
#   a cluster   RAY_ADDRESS=auto NNODES=2 MODEL_PATH=... TRAIN_FILES=... bash recipes/framemind_grpo.sh
#   no GPU      bash recipes/framemind_grpo.sh      # synthetic videos and a tiny model, which it makes first
#
# Open questions need a judge: JUDGE_BASE_URL=http://host:8000/v1 JUDGE_MODEL=<name> (docs/judge.md). The paper has no cold start.
# Arguments are options of verl, config groups, or options of `vvt train`:
#
#   trainer.total_training_steps=2       video_tools.framemind.low=[32,448]
#   +video_tools/lora=merged_grpo        +video_tools/correction=token_tis
#   --smoke-test   --dry-run             --cfg job    # prints the whole configuration
#
# Started again, it goes on from its last checkpoint.
set -euo pipefail
PYTHON=${PYTHON:-$(ls "$(dirname "$0")/../.venv/bin/python" 2>/dev/null || command -v python3)}
exec "$PYTHON" -m verl_video_tools.cli train grpo +video_tools=framemind_grpo "$@"
