# One node of 8 GPUs with 80 GB: all weights, with the batches and lengths of the paper. The default of every recipe.
[ "$SYNTHETIC" = 0 ] || return 0
NNODES=${NNODES:-1}
NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-8}
