# Sourced by every recipe, after it has set METHOD: finds the interpreter, the device, and what a CPU run needs, and takes
# PRESET (preset.sh). Defines PYTHON, DEVICE, REHEARSE, DRY_RUN, SYNTHETIC, OUTPUT_DIR, DEMO_DIR, the arrays CPU_RL and CPU_PLAIN and
# the functions absolute, quoted, files, located, log_to_file, log_quietly, same_run, supervised, dry_run, told and
# collect_ray_options.
REPO=$(CDPATH='' cd -- "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

if [ -z "${PYTHON:-}" ]; then
    if [ -n "${VIRTUAL_ENV:-}" ]; then PYTHON=$VIRTUAL_ENV/bin/python
    elif [ -x "$REPO/.venv/bin/python" ]; then PYTHON=$REPO/.venv/bin/python
    else PYTHON=$(command -v python3)
    fi
fi
export PATH="$(dirname "$PYTHON"):$PATH" # Ray and torchrun start their workers by name

if [ -z "${DEVICE:-}" ]; then
    if nvidia-smi -L >/dev/null 2>&1; then DEVICE=gpu
    elif [ "${RAY_ADDRESS:-local}" = local ]; then DEVICE=cpu
    else # other nodes may have what this one lacks, and a CPU run takes the synthetic world
        echo "RAY_ADDRESS names a cluster, and nvidia-smi finds no GPU on this node: set DEVICE=gpu or DEVICE=cpu" >&2
        exit 2
    fi
fi

# Two steps and a resumed one with the options of a real run (rehearsal.sh), on the synthetic world.
REHEARSE=${REHEARSE:-0}

# Checks everything that can be checked without Ray, an inference engine or weights, and ends (docs/dry-run.md).
DRY_RUN=${DRY_RUN:-0} STAND_IN=

# The synthetic world and the tiny model instead of a real data set: always without a GPU, on request with one.
if [ "$DEVICE" = cpu ] || [ "$REHEARSE" != 0 ]; then SYNTHETIC=1; else SYNTHETIC=${SYNTHETIC:-0}; fi

[ -n "${METHODS+set}" ] || METHODS=("$METHOD") # those that the rows name
# A path from the root: workers of a Ray cluster run in other folders.
absolute() { case $1 in /*) printf %s "$1" ;; *) printf %s "$PWD/$1" ;; esac; }
OUTPUT_DIR=$(absolute "${OUTPUT_DIR:-outputs}") # demo data, checkpoints and trajectories
DEMO_DIR=${DEMO_DIR:-$OUTPUT_DIR/demo_$METHOD} # the synthetic world with questions for this method (`vvt demo`)
BASE_FAMILY=${BASE_FAMILY:-qwen2_5_vl}         # the tiny model that learns there: qwen2_5_vl or qwen3_vl

CPU_RL=()    # options that a GRPO run needs on a machine without a GPU; docs/cpu.md says why each
CPU_PLAIN=() # and those that make it faster, or its numbers exact, which a rehearsal does without
case $DEVICE in
gpu) ;;
cpu)
    export VERL_PLATFORM=cpu HF_HUB_OFFLINE=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
    export VLLM_CPU_KVCACHE_SPACE=${VLLM_CPU_KVCACHE_SPACE:-1} VLLM_CPU_OMP_THREADS_BIND=${VLLM_CPU_OMP_THREADS_BIND:-nobind}
    export RAY_DEDUP_LOGS=${RAY_DEDUP_LOGS:-1}
    # Keep freed memory instead of handing it back to the kernel after every step: page faults cost more than the
    # arithmetic of a small model.
    export MALLOC_MMAP_MAX_=${MALLOC_MMAP_MAX_:-0} MALLOC_TRIM_THRESHOLD_=${MALLOC_TRIM_THRESHOLD_:-4294967296}
    export MALLOC_TOP_PAD_=${MALLOC_TOP_PAD_:-67108864}
    # vLLM compiles its sampler for half a minute at every start, even with enforce_eager; on a CPU that never pays.
    export TORCHDYNAMO_DISABLE=${TORCHDYNAMO_DISABLE:-1}
    # vLLM's CPU platform lets an engine run its model in its own process (CPU_PLAIN below) only where this is 0. What the
    # other process would be for, binding threads to cores, is switched off above.
    export VLLM_ENABLE_V1_MULTIPROCESSING=${VLLM_ENABLE_V1_MULTIPROCESSING:-0}
    CPU_RL=(
        trainer.device=cpu
        transfer_queue.backend.SimpleStorage.num_data_storage_units=1
        data.dataloader_num_workers=0 reward.num_workers=1 actor_rollout_ref.rollout.agent.num_workers=1
        actor_rollout_ref.actor.use_torch_compile=False actor_rollout_ref.actor.fsdp_config.use_torch_compile=False
        actor_rollout_ref.ref.fsdp_config.use_torch_compile=False
        actor_rollout_ref.rollout.enforce_eager=True
        actor_rollout_ref.rollout.free_cache_engine=False +actor_rollout_ref.rollout.enable_sleep_mode=False
        actor_rollout_ref.rollout.checkpoint_engine.update_weights_bucket_megabytes=16
        actor_rollout_ref.rollout.max_num_seqs=32
    )
    CPU_PLAIN=(
        actor_rollout_ref.model.enable_gradient_checkpointing=False
        actor_rollout_ref.actor.fsdp_config.param_offload=False actor_rollout_ref.actor.fsdp_config.optimizer_offload=False
        +actor_rollout_ref.actor.fsdp_config.mixed_precision.param_dtype=fp32
        +actor_rollout_ref.actor.fsdp_config.mixed_precision.reduce_dtype=fp32
        +actor_rollout_ref.actor.fsdp_config.mixed_precision.buffer_dtype=fp32
        +actor_rollout_ref.ref.fsdp_config.mixed_precision.param_dtype=fp32
        +actor_rollout_ref.ref.fsdp_config.mixed_precision.reduce_dtype=fp32
        +actor_rollout_ref.ref.fsdp_config.mixed_precision.buffer_dtype=fp32
        actor_rollout_ref.rollout.dtype=float32
    )
    [ "${ROLLOUT_TP:-1}" != 1 ] || CPU_PLAIN+=(+actor_rollout_ref.rollout.engine_kwargs.vllm.distributed_executor_backend=uni)
    ;;
*) echo "DEVICE must be cpu or gpu, got '$DEVICE'" >&2; exit 2 ;;
esac

source "$REPO/recipes/preset.sh"

# A value as Hydra takes it, whatever characters it has (lr=1e-6, brackets).
quoted() { printf "'%s'" "${1//\'/\\\'}"; }
# The same for a file, or a list of them ([a,b]), which stays as it is.
files() { case $1 in \[*) printf %s "$1" ;; *) quoted "$(located "$1")" ;; esac; }
# A path of this machine from the root; what is not there may be a model's name.
located() { if [ -e "$1" ]; then absolute "$1"; else printf %s "$1"; fi; }

# verl's log goes to a file of FOLDER, too, whatever else LOGGER names. A file per start, since verl's logger empties its
# own; `vvt report` reads them all. Its console logger writes the lines from which `log_quietly` shows steps.
log_to_file() { # FOLDER
    case $LOGGER in \[*\]) ;; *) echo "LOGGER must be a list such as '[\"console\",\"wandb\"]', got '$LOGGER'" >&2; exit 2 ;; esac
    case $LOGGER in *'"console"'*) ;; *) LOGGER="${LOGGER%]},\"console\"]" ;; esac
    case $LOGGER in *'"file"'*) ;; *) LOGGER="${LOGGER%]},\"file\"]" ;; esac
    export VERL_FILE_LOGGER_PATH=${VERL_FILE_LOGGER_PATH:-$1/metrics_$(date +%Y%m%d_%H%M%S).jsonl}
    # What trackers write on this machine would lie in the folder of whichever process logs, on a cluster a temporary one.
    export TENSORBOARD_DIR=${TENSORBOARD_DIR:-$1/tensorboard} WANDB_DIR=${WANDB_DIR:-$1} SWANLAB_LOG_DIR=${SWANLAB_LOG_DIR:-$1/swanlog}
    [ "$DRY_RUN" != 0 ] || mkdir -p "$1"
    # Our warnings are marked, so that they are shown beside the steps (verl_plugin/marked_warnings.py).
    [ "${VERBOSE:-0}" != 0 ] || export VVT_MARK_WARNINGS=1
}

# Fills the array QUIETLY, options of `supervised` for a training run of FOLDER: what it prints goes to FOLDER/run.log, and
# a line per step is shown (verl_plugin/console.py); with VERBOSE=1 everything is. Further nodes of a fine-tuning run have
# a log of their own. Says first what the run trains on: what was not set was chosen by a preset, or made.
log_quietly() { # FOLDER [VARIABLE ...]
    local name settings="" log=$1/run.log
    for name in DEVICE MODEL_PATH TRAIN_FILES TRAIN_BATCH_SIZE "${@:2}"; do settings+=" $name=${!name}"; done
    echo "[verl_video_tools] $EXPERIMENT_NAME:$settings"
    [ "${NODE_RANK:-0}" = 0 ] || log=$1/run_node$NODE_RANK.log
    QUIETLY=(--log "$log")
    [ "${VERBOSE:-0}" = 0 ] || QUIETLY+=(--verbose)
    echo "[verl_video_tools] $EXPERIMENT_NAME: all output in $log (VERBOSE=1 shows it)"
}

# A run goes on from the checkpoints in its folder: not from those of another model, or of other rows, which a file of the
# same name may hold. The folder keeps what its first start was given.
same_run() { # FOLDER
    local given path paths=("$TRAIN_FILES") file=$1/started_with.txt
    case $TRAIN_FILES in \[*) IFS=', ' read -r -a paths <<<"${TRAIN_FILES//[]\[\'\"]/}" ;; esac
    given="MODEL_PATH $(located "$MODEL_PATH")"$'\n'"TRAIN_FILES"
    # Files may have moved: a job of Ray unpacks its folder anew.
    for path in "${paths[@]}"; do given+=" ${path##*/} ($(stat -L -c %s "$path" 2>/dev/null || echo unknown) bytes)"; done
    if [ -s "$1/latest_checkpointed_iteration.txt" ] && [ -e "$file" ] && [ "$given" != "$(cat "$file")" ]; then
        printf '%s\n' "$1 holds checkpoints of a run that was started with" "$(cat "$file")" "and not with" "$given" \
            "Give this one another OUTPUT_DIR. To go on from those checkpoints all the same, remove $file" >&2
        exit 2
    fi
    [ "$DRY_RUN" != 0 ] || [ "${NODE_RANK:-0}" != 0 ] || printf '%s\n' "$given" >"$file"
}

# Runs a command and ends all that it has started: when it is over, and when this shell gets a signal, which a shell would
# let wait until its command has ended. Options of verl_plugin/supervise.py stand before --.
supervised() { # [OPTION ...] -- COMMAND [ARGUMENT ...]
    local pid status
    # In a session of its own: a terminal, or `kill -- -GROUP`, signals this shell as well, and a signal that comes twice
    # ends a run at once which SAVE_ON_SIGNAL=1 lets save. (`set -m` would stop a recipe in the background of a terminal.)
    setsid "$PYTHON" -m verl_video_tools.verl_plugin.supervise "$@" &
    pid=$!
    trap 'kill -s INT "$pid" 2>/dev/null' INT
    trap 'kill -s TERM "$pid" 2>/dev/null' TERM
    trap 'trap "" HUP; kill -s TERM "$pid" 2>/dev/null' HUP # a terminal that closes may say so twice
    while :; do # a signal ends the waiting, not the command
        if wait "$pid"; then status=0; else status=$?; fi
        kill -0 "$pid" 2>/dev/null || break
    done
    trap - INT TERM HUP
    return "$status"
}

# With DRY_RUN=1: checks what verl would be started with, prints one table, and ends the recipe. STAND_IN is the model
# whose tokenizer and processor are taken where the run's own is trained by the recipe first.
dry_run() { # grpo|sft [VERL_OPTION ...]
    [ "$DRY_RUN" != 0 ] || return 0
    local kind=$1
    shift
    exec "$PYTHON" -m verl_video_tools.dry_run --kind "$kind" --device "$DEVICE" ${STAND_IN:+--stand-in "$STAND_IN"} -- "$@"
}

# Runs a command that only tells of a run which has succeeded: one that fails says so, and the recipe goes on.
told() { # COMMAND [ARGUMENT ...]
    "$@" || echo "[verl_video_tools] failed with exit code $?, and the run is whole without it: $*" >&2
}

# Fills the array RAY_OPTIONS: a GRPO run joins the Ray cluster of RAY_ADDRESS (`ray job submit` sets it), else it starts
# Ray on this machine (docs/cluster.md: or joins one that was started there). To be called when all variables are exported.
collect_ray_options() {
    local name
    RAY_OPTIONS=()
    if [ "${RAY_ADDRESS:-local}" = local ]; then
        # verl's placement groups count CPUs and GPUs; these are logical ones. On a cluster `ray start` declares them.
        # Without `address` Ray would join one that runs here, or was killed here, and refuse to count CPUs for it.
        [ "$DEVICE" != cpu ] || RAY_OPTIONS=(
            +ray_kwargs.ray_init.address=local +ray_kwargs.ray_init.include_dashboard=False
            ray_kwargs.ray_init.num_cpus=32 +ray_kwargs.ray_init.num_gpus="$NDEVICES_PER_NODE")
        return
    fi
    # Workers inherit the variables of their node's `ray start`, not of this shell. Keys and tokens stay out, since verl
    # prints its configuration, and so do addresses of this very node: those have to be there before `ray start`.
    while read -r name; do
        RAY_OPTIONS+=("+ray_kwargs.ray_init.runtime_env.env_vars.$name=$(quoted "${!name}")")
    done < <(compgen -e |
        grep -E '^((VVT|VERL|TQ|VLLM|NCCL|GLOO|HF|WANDB|MLFLOW|SWANLAB|TENSORBOARD|MALLOC)_|OMP_NUM_THREADS$|PYTHONPATH$|TORCHDYNAMO_DISABLE$)' |
        grep -vE '(KEY|TOKEN|SECRET|PASSWORD|HOST_IP)$')
    export RAY_OVERRIDE_JOB_RUNTIME_ENV=1 # some of these also stand in a submitted job's environment
}
