# Sourced by longvt_sft.sh and longvt_rft.sh: the settings that both stages of fine-tuning share.
PROJECT_NAME=${PROJECT_NAME:-verl_video_tools}
LOGGER=${LOGGER:-'["console"]'}
LORA_RANK=${LORA_RANK:-0}
LORA_ALPHA=${LORA_ALPHA:-16}
if [ "$SYNTHETIC" = 0 ]; then # the published settings; they pack sequences, here batches are filled by tokens
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-8}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-64}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
    LEARNING_RATE=${LEARNING_RATE:-5e-5}
    WARMUP_RATIO=${WARMUP_RATIO:-0.1}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-100} # MAX_STEPS ends it
    MAX_LENGTH=${MAX_LENGTH:-57344}
    NUM_WORKERS=${NUM_WORKERS:-8}
    SETTING_OPTIONS=(
        optim.weight_decay=0 trainer.total_training_steps="$MAX_STEPS" trainer.save_freq="$SAVE_FREQ"
        data.use_dynamic_bsz=True data.max_token_len_per_gpu="$MAX_LENGTH"
        # The pixel envelope of longvt_grpo.sh.
        +data.mm_processor_kwargs.min_pixels=784 +data.mm_processor_kwargs.max_pixels=50176)
else # the synthetic world: 56x56 frames of 4 tokens each
    NNODES=${NNODES:-1}
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-1}
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-16}
    MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-4} # small, since a batch is padded to its longest row
    LEARNING_RATE=${LEARNING_RATE:-3e-3}
    WARMUP_RATIO=${WARMUP_RATIO:-0.05}
    TOTAL_EPOCHS=${TOTAL_EPOCHS:-2}
    MAX_LENGTH=${MAX_LENGTH:-1280}
    NUM_WORKERS=${NUM_WORKERS:-0} # decoded rows stay in the trainer's memory from epoch to epoch
    SETTING_OPTIONS=(
        # As in longvt_grpo.sh: the tiny model's own short prompt, and looks of few frames.
        +data.video_tools.longvt.prompt_file="$DEMO_DIR/prompts/longvt.txt"
        +data.video_tools.longvt.max_frames=8 +data.video_tools.longvt.max_crop_frames=32)
    # Whole weights in float32; verl's merger would round them. With LoRA they would come with the adapter's names.
    [ "$LORA_RANK" != 0 ] || SETTING_OPTIONS+=(checkpoint.save_contents='[model,optimizer,extra,hf_model]')
fi
source "$REPO/recipes/sft.sh"
