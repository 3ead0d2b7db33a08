#!/usr/bin/env bash
# Cold start without tools on the synthetic world: supervised fine-tuning on answers from the first look.
#
#   DEVICE=cpu bash examples/learning_curve/direct_sft.sh
#
# Ends with a Hugging Face folder $SFT_DIR/huggingface, which direct_grpo.sh takes as MODEL_PATH.
set -euo pipefail
METHOD=direct
SYNTHETIC=1
source "$(dirname "${BASH_SOURCE[0]}")/../../recipes/common.sh"
source "$REPO/recipes/sft.sh"
