# Sourced at the end of a method's SFT recipe: runs verl's SFT trainer with what all methods share, then exports the model.
# Needs SFT_DIR, the variables below and the array SETTING_OPTIONS, which wins over what stands here; arguments of the
# recipe win over all.
if [ "$DEVICE" = gpu ]; then
    LAUNCH=("$PYTHON" -m torch.distributed.run --standalone --nnodes="$NNODES" --nproc_per_node="$NDEVICES_PER_NODE"
        -m verl.trainer.sft_trainer)
    [ "$NNODES" = 1 ] || LAUNCH=("$PYTHON" -m torch.distributed.run --nnodes="$NNODES" --nproc_per_node="$NDEVICES_PER_NODE"
        --node_rank="${NODE_RANK:?0 to NNODES - 1}" --master_addr="${MASTER_ADDR:?address of node 0}"
        --master_port="${MASTER_PORT:-29500}" -m verl.trainer.sft_trainer)
    DEVICE_OPTIONS=()
else
    # A single process, unlike reinforcement learning. Waiting threads sleep, so that they do not take the cores from
    # whatever else runs on the machine.
    LAUNCH=(env OMP_NUM_THREADS="${SFT_THREADS:-1}" OMP_WAIT_POLICY=PASSIVE "$PYTHON" -m verl_video_tools.platforms.cpu_sft)
    DEVICE_OPTIONS=(
        model.use_remove_padding=False model.enable_gradient_checkpointing=False
        +model.override_config.attn_implementation=sdpa engine.use_torch_compile=False
        +engine.mixed_precision.param_dtype=fp32 +engine.mixed_precision.reduce_dtype=fp32
        +engine.mixed_precision.buffer_dtype=fp32)
fi

DATA=(
    data.train_files="$TRAIN_FILES" data.train_batch_size="$TRAIN_BATCH_SIZE"
    data.micro_batch_size_per_gpu="$MICRO_BATCH_SIZE" data.use_dynamic_bsz=False data.pad_mode=no_padding
    data.max_length="$MAX_LENGTH" data.truncation=error data.num_workers="$NUM_WORKERS"
    data.custom_cls.path=pkg://verl_video_tools.data.sft_dataset data.custom_cls.name=TrajectorySFTDataset
)
MODEL=(
    model.path="$MODEL_PATH" model.lora_rank="$LORA_RANK" model.lora_alpha="$LORA_ALPHA" model.target_modules=all-linear
    model.exclude_modules='.*visual.*' # the adapter leaves the vision tower alone; without LoRA all weights train
)
ENGINE=(engine.strategy=fsdp2)
OPTIMIZER=(optim.lr="$LEARNING_RATE" optim.lr_scheduler_type=cosine optim.lr_warmup_steps_ratio="$WARMUP_RATIO")
TRAINER=(
    trainer.project_name="$PROJECT_NAME" trainer.experiment_name="$EXPERIMENT_NAME" trainer.logger="$LOGGER"
    trainer.default_local_dir="$SFT_DIR" trainer.max_ckpt_to_keep=1 trainer.total_epochs="$TOTAL_EPOCHS"
    trainer.nnodes="$NNODES" trainer.n_gpus_per_node="$NDEVICES_PER_NODE"
)

"${LAUNCH[@]}" "${DATA[@]}" "${MODEL[@]}" "${ENGINE[@]}" "${OPTIMIZER[@]}" "${TRAINER[@]}" \
    "${SETTING_OPTIONS[@]}" "${DEVICE_OPTIONS[@]}" "$@"

# ------------------------------------------------------------------------------------------------------------- result
if [ "${NODE_RANK:-0}" = 0 ]; then
    "$PYTHON" -m verl_video_tools.data.export_model "$SFT_DIR" "$SFT_DIR/huggingface"
fi
