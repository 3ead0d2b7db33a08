# Sourced by grpo.sh with REHEARSE=1: two steps of any recipe with every option of its real run but lengths, then a third
# step that resumes from the second one's checkpoint. This file alone decides what a rehearsal takes from where:
#
#   from the real run          REAL_OPTIONS: offloading, options of the method; packing, bfloat16, gradient checkpointing
#   from the synthetic world   model, videos, rows, fields of the method, token limits and batch sizes (not REAL_LENGTHS)
#   of its own                 two devices and Ulysses over both; on a CPU a stand-in for flash-attn, and CPU_RL
#
# LORA_RANK and ROLLOUT_CORRECTION are rehearsed where they are asked for.
FIRST_STEPS=2
NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-2}
TOTAL_STEPS=$FIRST_STEPS SAVE_FREQ=1
RUN_DIR=${RUN_DIR:-$OUTPUT_DIR/${METHOD}_rehearsal/$(date +%Y%m%d_%H%M%S)} # a rehearsal starts from the cold start
if [ -e "$RUN_DIR/latest_checkpointed_iteration.txt" ]; then
    echo "RUN_DIR=$RUN_DIR holds checkpoints, from which a rehearsal would resume; name an empty folder" >&2
    exit 2
fi

# Fills the array REHEARSAL_OPTIONS, which follows the synthetic world's.
collect_rehearsal_options() {
    local devices=$((NNODES * NDEVICES_PER_NODE))
    REHEARSAL_OPTIONS=(
        "${REAL_OPTIONS[@]}"
        actor_rollout_ref.model.use_remove_padding=True
        actor_rollout_ref.actor.ulysses_sequence_parallel_size=$((devices % 2 ? 1 : 2)))
    [ "$DEVICE" != cpu ] || { # a GPU has flash-attn
        attention_options actor_rollout_ref.model
        REHEARSAL_OPTIONS+=("${ATTENTION[@]}")
    }
}

resume_rehearsal() { # [VERL_OPTION ...]
    export VERL_FILE_LOGGER_PATH="${VERL_FILE_LOGGER_PATH%.jsonl}_resumed.jsonl"
    train trainer.total_training_steps=$((FIRST_STEPS + 1)) "$@"
}

report_rehearsal() {
    "$PYTHON" -m verl_video_tools.records.rehearsal "$DEVICE" "$RUN_DIR"
}
