# The nodes of 8 GPUs that the method's paper trained on. Its batches, lengths and learning rate are the recipe's defaults.
case $METHOD-$STAGE in
framethinker-* | videobrain-* | framemind-grpo | videozoomer-sft) nodes=1 ;;
videozoomer-grpo) nodes=2 ;;
longvt-sft) nodes=4 ;;
longvt-*) nodes=8 ;;
*)
    echo "PRESET=published: no paper says on what $METHOD, stage $STAGE, was trained" >&2
    exit 2
    ;;
esac
[ "$SYNTHETIC" = 0 ] || return 0
NNODES=${NNODES:-$nodes}
NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-8}
[ "$STAGE" = grpo ] || ULYSSES=${ULYSSES:-1} # so many GPUs hold a sequence of LongVT's cold start each
