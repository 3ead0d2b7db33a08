# Sourced by longvt_sft.sh and longvt_rft.sh: the settings that LongVT's two stages of fine-tuning share.
if [ "$SYNTHETIC" = 0 ]; then
    # Ours: 64 rows of up to 57,344 tokens. Published: rows packed to 51,200 tokens on each of 32 GPUs (64 in RFT), which
    # is several times as many.
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-64}
    LEARNING_RATE=${LEARNING_RATE:-5e-5}
    MAX_LENGTH=${MAX_LENGTH:-57344}
    # One of 8 GPUs does not hold such a sequence alone; two do.
    ULYSSES=${ULYSSES:-$((${NNODES:-1} * ${NDEVICES_PER_NODE:-8} % 2 ? 1 : 2))}
    REAL_OPTIONS=(
        optim.weight_decay=0 trainer.total_training_steps="$MAX_STEPS"
        # GPUs that share a sequence fill a batch together.
        data.use_dynamic_bsz=True data.max_token_len_per_gpu="$(((MAX_LENGTH + ULYSSES - 1) / ULYSSES))"
        # The pixel envelope of longvt_grpo.sh. Rows about pictures may have more: frames keep the method's own bound.
        +data.mm_processor_kwargs.min_pixels=784 +data.mm_processor_kwargs.max_pixels="${PICTURE_PIXELS:-50176}")
else
    MAX_LENGTH=${MAX_LENGTH:-1280}
    [ "${OPEN_ENDED:-0}" = 0 ] || DEMO_OPTIONS=(--open-ended)
fi
