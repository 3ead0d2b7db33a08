#!/usr/bin/env bash
# LongVT, reinforcement fine-tuning (arXiv 2511.20785, 4.3): the RL checkpoint, fine-tuned on its own good rollouts.
#
#   8 GPUs   MODEL_PATH=<RL checkpoint> bash recipes/longvt_rft.sh video_tools.rft.records_dir=<its trajectories> \
#                video_tools.rft.cold_start=[<rows of the cold start>]
#   no GPU   bash recipes/longvt_rft.sh     # after recipes/longvt_sft.sh and recipes/longvt_grpo.sh
#
# Rollouts alone let the policy forget what none of them shows (docs/learning.md), so video_tools.rft.cold_share of the rows
# are drawn from those of the cold start. Arguments are options of verl, config groups, or options of `vvt train`, such as
# --cfg job, which prints the whole configuration. Ends with a Hugging Face folder, <OUTPUT_DIR>/longvt_rft/huggingface.
set -euo pipefail
PYTHON=${PYTHON:-$(ls "$(dirname "$0")/../.venv/bin/python" 2>/dev/null || command -v python3)}
exec "$PYTHON" -m verl_video_tools.cli train rft +video_tools=longvt_rft "$@"
