# One node of 4 GPUs with 48 GB: an adapter on the language model, smaller batches than the paper's; LongVT with half of its
# frames.
case $METHOD in
mixed)
    echo "PRESET=$PRESET has no settings for several methods in one run: its rollouts are too long for 48 GB" >&2
    exit 2
    ;;
esac
LORA_RANK=${LORA_RANK:-32}
LORA_ALPHA=${LORA_ALPHA:-64}
ACTOR_MICRO_BATCH_SIZE=${ACTOR_MICRO_BATCH_SIZE:-1}
[ "$SYNTHETIC" = 0 ] || return 0 # a rehearsal has lengths and batches of its own

NNODES=${NNODES:-1}
NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-4}
CORES_PER_NODE=${CORES_PER_NODE:-32}
MICRO_BATCH_SIZE=${MICRO_BATCH_SIZE:-1}
case $METHOD in
longvt)
    TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-8}
    ULYSSES=${ULYSSES:-4}
    METHOD_FIELDS=${METHOD_FIELDS:-initial_frames=256 call_frames=64}
    MAX_PROMPT_LENGTH=${MAX_PROMPT_LENGTH:-20480}
    MAX_LENGTH=${MAX_LENGTH:-36864}
    ;;
videozoomer) ULYSSES=${ULYSSES:-4} ;;
*) ULYSSES=${ULYSSES:-2} ;;
esac
TRAIN_BATCH_SIZE=${TRAIN_BATCH_SIZE:-16}
if [ "$STAGE" = grpo ]; then
    MINI_BATCH_SIZE=${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}
    ROLLOUT_N=${ROLLOUT_N:-8}
    ROLLOUT_TP=${ROLLOUT_TP:-1}
    LEARNING_RATE=${LEARNING_RATE:-1e-5} # ten times that of all weights
    MAX_BATCHED_TOKENS=${MAX_BATCHED_TOKENS:-32768}
else
    LEARNING_RATE=${LEARNING_RATE:-1e-4} # FrameThinker's, which is the one paper that fine-tunes an adapter
fi
