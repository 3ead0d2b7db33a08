# Sourced by every <method>_sft.sh, after it has set METHOD and what the method changes: the SFT run that all share.
#
# Needs METHOD and, for real data, the array REAL_OPTIONS, and takes EXPORT_OPTIONS (of `vvt data export-sft`). METHODS
# lists the rows' methods where they are several. Every variable below can be set from outside. Ends with a Hugging Face
# folder $SFT_DIR/huggingface, which <method>_grpo.sh takes as MODEL_PATH.

if [ "$REHEARSE" != 0 ]; then
    echo "REHEARSE=1 rehearses reinforcement learning: REHEARSE=1 bash recipes/${METHOD}_grpo.sh, which makes its cold start itself" >&2
    exit 2
fi

# ------------------------------------------------------------------------------------------------- user-adjustable
PROJECT_NAME=${PROJECT_NAME:-verl_video_tools}
EXPERIMENT_NAME=${EXPERIMENT_NAME:-${METHOD}_sft}
SFT_DIR=$(absolute "${SFT_DIR:-$OUTPUT_DIR/$EXPERIMENT_NAME}")
LOGGER=${LOGGER:-'["console"]'}
log_to_file "$SFT_DIR"

SAVE_FREQ=${SAVE_FREQ:-100} # steps
LORA_ALPHA=${LORA_ALPHA:-16}
NNODES=${NNODES:-1}
ULYSSES=${ULYSSES:-1} # GPUs that share a sequence (docs/memory.md)
FREEZE_VISION_TOWER=${FREEZE_VISION_TOWER:-0}

if [ "$SYNTHETIC" = 0 ]; then
    MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-VL-7B-Instruct}
    TRAIN_FILES=${TRAIN_FILES:?parquet file of rows with a column turns; see docs/cold-start.md}
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-8}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
    WARMUP_RATIO=${WARMUP_RATIO:-0.1}
    LORA_RANK=${LORA_RANK:-0}
    MAX_LENGTH=${MAX_LENGTH:-16384}
    # Worker processes of each device's loader, each with two batches ready in /dev/shm, in LOADER_GB of it per node: a
    # token of an image is 3,072 bytes at most. With a single one, frames are still decoded on several threads.
    LOADER_GB=${LOADER_GB:-16}
    devices=$((NNODES * NDEVICES_PER_NODE)) # those that share a sequence load the same rows
    rows_per_device=$(((TRAIN_BATCH_SIZE * ULYSSES + devices - 1) / devices))
    affordable=$((LOADER_GB * 1000000000 / (NDEVICES_PER_NODE * 2 * rows_per_device * MAX_LENGTH * 3072)))
    NUM_WORKERS=${NUM_WORKERS:-$((affordable < 1 ? 1 : affordable > 8 ? 8 : affordable))}
    SETTING_OPTIONS=(engine.ulysses_sequence_parallel_size="$ULYSSES" "${REAL_OPTIONS[@]}")
    # Fields of the method, `name=value` with spaces between.
    for field in ${METHOD_FIELDS:-}; do SETTING_OPTIONS+=("+data.video_tools.$METHOD.$field"); done
else # the synthetic world: 56x56 frames of 4 tokens each, and the tiny model's own short prompt
    MODEL_PATH=${MODEL_PATH:-$DEMO_DIR/base}
    TRAIN_FILES=${TRAIN_FILES:-$SFT_DIR/train.parquet}
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-1}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-8} # small: a million parameters learn from the number of updates
    devices=1 # that share a batch; on a CPU it is one process
    [ "$DEVICE" = cpu ] || devices=$((NNODES * NDEVICES_PER_NODE))
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-$((TRAIN_BATCH_SIZE < devices ? 1 : TRAIN_BATCH_SIZE / devices))}
    LEARNING_RATE=${LEARNING_RATE:-3e-3}
    WARMUP_RATIO=${WARMUP_RATIO:-0.05}
    LORA_RANK=${LORA_RANK:-0}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-1}
    MAX_LENGTH=${MAX_LENGTH:-1024}
    NUM_WORKERS=${NUM_WORKERS:-1} # decodes while the trainer computes
    QUESTIONS_PER_VIDEO=${QUESTIONS_PER_VIDEO:-10} # others than reinforcement learning asks
    IMPERFECTION=${IMPERFECTION:-0.1} # how often the expert looks at a wrong place; leaves something to reinforcement learning
    source "$REPO/recipes/synthetic.sh"
    collect_fields +data.video_tools.
    attention_options model
    SETTING_OPTIONS=("${ATTENTION[@]}" "${FIELDS[@]}")
    # Whole weights in float32; verl's merger would round them. With LoRA they would come with the adapter's names.
    [ "$LORA_RANK" != 0 ] || SETTING_OPTIONS+=(checkpoint.save_contents='[model,optimizer,extra,hf_model]')
    make_demo
    if [ "$TRAIN_FILES" = "$SFT_DIR/train.parquet" ]; then
        mkdir -p "$SFT_DIR"
        collect_fields --set=
        # Answers are texts of options: a model of a million parameters copies them, but looks up letters poorly.
        vvt data export-sft "$DEMO_DIR/train.parquet" "$TRAIN_FILES" --overwrite --in-words \
            --questions-per-video "$QUESTIONS_PER_VIDEO" --imperfection "$IMPERFECTION" "${FIELDS[@]}" \
            ${EXPORT_OPTIONS[@]+"${EXPORT_OPTIONS[@]}"}
    fi
fi

if [ "$DRY_RUN" != 0 ]; then # which is made on one machine alone
    NODE_RANK=${NODE_RANK:-0} MASTER_ADDR=${MASTER_ADDR:-dry-run}
fi
if [ "$DEVICE" = gpu ]; then
    LAUNCH=("$PYTHON" -m torch.distributed.run --standalone --nnodes="$NNODES" --nproc_per_node="$NDEVICES_PER_NODE"
        -m verl_video_tools.verl_plugin.sft_trainer)
    if [ "$NNODES" != 1 ]; then
        [ -n "${NODE_RANK:-}" ] && [ -n "${MASTER_ADDR:-}" ] || {
            echo "with NNODES=$NNODES start this on every node, with its NODE_RANK from 0 and node 0's MASTER_ADDR" >&2
            exit 2
        }
        LAUNCH=("$PYTHON" -m torch.distributed.run --nnodes="$NNODES" --nproc_per_node="$NDEVICES_PER_NODE"
            --node_rank="$NODE_RANK" --master_addr="$MASTER_ADDR" --master_port="${MASTER_PORT:-29500}"
            -m verl_video_tools.verl_plugin.sft_trainer)
    fi
    DEVICE_OPTIONS=()
else
    # A single process, unlike reinforcement learning. Waiting threads sleep, so that they do not take the cores from
    # whatever else runs on the machine.
    LAUNCH=(env OMP_NUM_THREADS="${SFT_THREADS:-1}" OMP_WAIT_POLICY=PASSIVE "$PYTHON" -m verl_video_tools.verl_plugin.platforms.cpu_sft)
    DEVICE_OPTIONS=(
        model.enable_gradient_checkpointing=False engine.use_torch_compile=False
        +engine.mixed_precision.param_dtype=fp32 +engine.mixed_precision.reduce_dtype=fp32
        +engine.mixed_precision.buffer_dtype=fp32)
fi

# ----------------------------------------------------------------------------------------------------- every method
DATA=(
    data.train_files="$(files "$TRAIN_FILES")" data.train_batch_size="$TRAIN_BATCH_SIZE"
    data.micro_batch_size_per_gpu="$MICRO_BATCH_SIZE" data.use_dynamic_bsz=False data.pad_mode=no_padding
    data.max_length="$MAX_LENGTH" data.truncation=error data.num_workers="$NUM_WORKERS"
    data.custom_cls.path=pkg://verl_video_tools.verl_plugin.sft_dataset data.custom_cls.name=TrajectorySFTDataset
)
MODEL=(
    model.path="$(quoted "$(located "$MODEL_PATH")")" model.lora_rank="$LORA_RANK" model.lora_alpha="$LORA_ALPHA" model.target_modules=all-linear
    model.exclude_modules='.*visual.*' # the adapter leaves the vision tower alone
)
ENGINE=(engine.strategy=fsdp2)
[ "$FREEZE_VISION_TOWER" = 0 ] || ENGINE+=(engine._target_=verl_video_tools.verl_plugin.engine.frozen_tower.FrozenTowerConfig)
OPTIMIZER=(optim.lr="$LEARNING_RATE" optim.lr_scheduler_type=cosine optim.lr_warmup_steps_ratio="$WARMUP_RATIO")
TRAINER=(
    trainer.project_name="$(quoted "$PROJECT_NAME")" trainer.experiment_name="$(quoted "$EXPERIMENT_NAME")"
    trainer.logger="$LOGGER" trainer.default_local_dir="$(quoted "$SFT_DIR")" trainer.total_epochs="$TOTAL_EPOCHS"
    # With one to keep, verl removes it before the file of the last step's number names the next: a run that is killed
    # between would start from scratch. Two take no more disk at their peak.
    trainer.save_freq="$SAVE_FREQ" trainer.max_ckpt_to_keep=2
    trainer.nnodes="$NNODES" trainer.n_gpus_per_node="$NDEVICES_PER_NODE"
)

OPTIONS=("${DATA[@]}" "${MODEL[@]}" "${ENGINE[@]}" "${OPTIMIZER[@]}" "${TRAINER[@]}" "${SETTING_OPTIONS[@]}" "${DEVICE_OPTIONS[@]}" "$@")
same_run "$SFT_DIR"
dry_run sft "${OPTIONS[@]}"
log_quietly "$SFT_DIR"
supervised "${QUIETLY[@]}" -- "${LAUNCH[@]}" "${OPTIONS[@]}"

# ------------------------------------------------------------------------------------------------------------- result
if [ "${NODE_RANK:-0}" = 0 ]; then
    told "$PYTHON" -m verl_video_tools.records.summary "$SFT_DIR"
    "$PYTHON" -m verl_video_tools.verl_plugin.export_model "$SFT_DIR" "$SFT_DIR/huggingface"
fi
