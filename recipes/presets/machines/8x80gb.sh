# One node of 8 GPUs with 80 GB: all weights, with the batches and lengths of the paper. Every recipe's default machine.
[ "$SYNTHETIC" = 0 ] || return 0
NNODES=${NNODES:-1}
NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-8}
