#!/usr/bin/env bash
# LongVT, reinforcement fine-tuning (arXiv 2511.20785, 4.3): the RL checkpoint, fine-tuned on its own good rollouts.
#
#   GPU machine   MODEL_PATH=<RL checkpoint> RECORDS_DIR=<its trajectories> SFT_FILES=<cold start> \
#                     bash recipes/longvt_rft.sh             # PRESET=published: 8 nodes
#   laptop        DEVICE=cpu bash recipes/longvt_rft.sh      # after recipes/longvt_grpo.sh
#
# Rollouts alone let the policy forget what none of them shows (docs/learning.md), so COLD_SHARE of the rows, by default
# that of the published data, are drawn from SFT_FILES: parquet files of the cold start, comma between them. COLD_SHARE=0
# trains on the rollouts alone. MIN_RL_STEP and MAX_RL_STEP bound the steps whose rollouts count. Ends with $SFT_DIR/huggingface.
# Further arguments are verl options, e.g. trainer.total_training_steps=2. Started again, it resumes from its checkpoint.
set -euo pipefail
METHOD=longvt
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

EXPERIMENT_NAME=${EXPERIMENT_NAME:-longvt_rft}
SFT_DIR=${SFT_DIR:-$OUTPUT_DIR/$EXPERIMENT_NAME}
RL_DIR=${RL_DIR:-$OUTPUT_DIR/longvt_grpo}
MODEL_PATH=${MODEL_PATH:-$RL_DIR/huggingface}
RECORDS_DIR=${RECORDS_DIR:-$RL_DIR/trajectories}
MIN_IOU=${MIN_IOU:-0.3}
COLD_SHARE=${COLD_SHARE:-0.94}
[ "$SYNTHETIC" = 0 ] || SFT_FILES=${SFT_FILES:-$OUTPUT_DIR/longvt_sft/train.parquet} # what recipes/longvt_sft.sh wrote

[ -f "$MODEL_PATH/config.json" ] || { echo "MODEL_PATH=$MODEL_PATH holds no model; run recipes/longvt_grpo.sh first" >&2; exit 2; }
# On several nodes each writes one of its own, the same as the others', rather than read what another is writing.
RFT_FILE=$SFT_DIR/rft${NODE_RANK:+_node$NODE_RANK}.parquet
RFT_OPTIONS=(--min-iou "$MIN_IOU")
[ -z "${MIN_RL_STEP:-}" ] || RFT_OPTIONS+=(--min-step "$MIN_RL_STEP")
[ -z "${MAX_RL_STEP:-}" ] || RFT_OPTIONS+=(--max-step "$MAX_RL_STEP")
if [ "$COLD_SHARE" != 0 ]; then
    IFS=, read -ra sft_files <<< "${SFT_FILES:?parquet files of the cold start; or COLD_SHARE=0 for the rollouts alone}"
    for file in "${sft_files[@]}"; do RFT_OPTIONS+=(--cold-start "$file"); done
    RFT_OPTIONS+=(--cold-share "$COLD_SHARE")
fi
vvt data export-rft "$RECORDS_DIR" "$RFT_FILE" --overwrite "${RFT_OPTIONS[@]}"
TRAIN_FILES=$RFT_FILE

if [ "$SYNTHETIC" = 0 ]; then # the published settings
    MAX_STEPS=${MAX_STEPS:-1600}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-7} # ours: fewer rows than the published 15,400 end it sooner
    SAVE_FREQ=${SAVE_FREQ:-400}
else
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-4} # a short run of the tiny model leaves few rollouts that are worth keeping
fi
source "$REPO/recipes/longvt_tuning.sh"
source "$REPO/recipes/sft.sh"
