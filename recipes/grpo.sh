# Sourced by every <method>_grpo.sh, after it has set METHOD and what the method changes: the GRPO run that all share.
#
# Needs METHOD, MAX_IMAGES and the arrays METHOD_OPTIONS (fixed by the method's paper) and, for real data, REAL_OPTIONS
# and REAL_LENGTHS. The latter follow from real videos and GPUs, so that a rehearsal leaves them out. METHODS lists the
# rows' methods where they are several, PLAN_OPTIONS what `vvt plan` has to know of a method. A recipe of another package
# sets METHOD_DIR, the folder of its method's class, AGENT_LOOPS, its file of agent loops, and SFT_RECIPE, its cold start.
# Every variable below can be set from outside. PRESET sets those that a model and a machine need (docs/presets.md).

# ------------------------------------------------------------------------------------------------- user-adjustable
PROJECT_NAME=${PROJECT_NAME:-verl_video_tools}
EXPERIMENT_NAME=${EXPERIMENT_NAME:-${METHOD}_grpo}
if [ "$REHEARSE" = 0 ]; then RUN_DIR=${RUN_DIR:-$OUTPUT_DIR/$EXPERIMENT_NAME}
else source "$REPO/recipes/rehearsal.sh"
fi
RUN_DIR=$(absolute "$RUN_DIR")
ROLLOUT_TP=${ROLLOUT_TP:-1}
ULYSSES=${ULYSSES:-1} # GPUs among which the actor divides a sequence (docs/memory.md)
GPU_MEMORY_UTILIZATION=${GPU_MEMORY_UTILIZATION:-0.6} # part of a GPU's memory that vLLM takes
ROLLOUT_N=${ROLLOUT_N:-8}
NNODES=${NNODES:-1}
FREEZE_VISION_TOWER=${FREEZE_VISION_TOWER:-0}
SAVE_ON_SIGNAL=${SAVE_ON_SIGNAL:-0} # 1: the first SIGINT, SIGTERM or SIGHUP lets the step end and saves a checkpoint
LORA_RANK=${LORA_RANK:-0} # 0 trains all weights
LORA_ALPHA=${LORA_ALPHA:-16}
LORA_SYNC=${LORA_SYNC:-merged} # what the inference engine gets: the merged weights, or the adapter beside the first ones
ROLLOUT_CORRECTION=${ROLLOUT_CORRECTION:-off} # importance weights for what engine and actor differ by (docs/training.md)
case $ROLLOUT_CORRECTION in                   # verl's presets decoupled_token_is, decoupled_seq_is, decoupled_seq_is_rs
off) CORRECTION=() ;;
token_tis) CORRECTION=(algorithm.rollout_correction.rollout_is=token) ;;
sequence_tis) CORRECTION=(algorithm.rollout_correction.rollout_is=sequence) ;;
mis)
    CORRECTION=(
        algorithm.rollout_correction.rollout_is=sequence
        algorithm.rollout_correction.rollout_rs=seq_sum_k1 algorithm.rollout_correction.rollout_rs_threshold=0.5_2.0)
    ;;
*)
    echo "ROLLOUT_CORRECTION must be off, token_tis, sequence_tis or mis, got '$ROLLOUT_CORRECTION'" >&2
    exit 2
    ;;
esac
MAX_MODEL_LEN=${MAX_MODEL_LEN:-$((MAX_PROMPT_LENGTH + MAX_RESPONSE_LENGTH))} # fewer are refused: turns would be cut
LOGGER=${LOGGER:-'["console"]'}
log_to_file "$RUN_DIR"
# How verl sends a finished rollout to its reward worker: by default it pickles on the event loop of the agent loop worker,
# 3 to 20 ms for a rollout of LongVT; so it takes 0.1 ms. The same bits arrive.
export VERL_DATAPROTO_SERIALIZATION_METHOD=${VERL_DATAPROTO_SERIALIZATION_METHOD:-numpy}

REAL_OPTIONS=(
    actor_rollout_ref.actor.fsdp_config.param_offload=True actor_rollout_ref.actor.fsdp_config.optimizer_offload=True
    # verl keeps the reference of a KL loss in main memory and copies it to the GPU for each micro-batch: half the bytes,
    # and the same bits, since it computes in bfloat16.
    actor_rollout_ref.ref.fsdp_config.model_dtype=bf16
    actor_rollout_ref.actor.ulysses_sequence_parallel_size="$ULYSSES"
    actor_rollout_ref.rollout.gpu_memory_utilization="$GPU_MEMORY_UTILIZATION" ${REAL_OPTIONS[@]+"${REAL_OPTIONS[@]}"})
if [ "$SYNTHETIC" = 0 ]; then
    MODEL_PATH=${MODEL_PATH:-Qwen/Qwen2.5-VL-7B-Instruct}
    TRAIN_FILES=${TRAIN_FILES:?parquet file of rows; see docs/rows.md}
    VAL_FILES=${VAL_FILES:-$TRAIN_FILES}
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-8}
    SAVE_FREQ=${SAVE_FREQ:-50}
    TOTAL_STEPS=${TOTAL_STEPS:-null}
    VAL_BATCH_SIZE=${VAL_BATCH_SIZE:-$((TRAIN_BATCH_SIZE * ROLLOUT_N))} # as many rollouts at once as a step has
    STORAGE_UNITS=${STORAGE_UNITS:-$((NNODES < 2 ? 8 : 4 * NNODES))}    # TransferQueue asks for two per node or more
    # They decode: one for six cores, as `vvt plan` counts. A group stays with one of them.
    CORES_PER_NODE=${CORES_PER_NODE:-96}
    most_workers=$((NNODES * (CORES_PER_NODE < 6 ? 1 : CORES_PER_NODE / 6)))
    AGENT_WORKERS=${AGENT_WORKERS:-$((TRAIN_BATCH_SIZE < most_workers ? TRAIN_BATCH_SIZE : most_workers))}
    # Fields of the method, `name=value` with spaces between.
    REAL_FIELDS=()
    for field in ${METHOD_FIELDS:-}; do
        REAL_FIELDS+=("+actor_rollout_ref.rollout.custom.video_tools.$METHOD.$field")
        PLAN_OPTIONS+=(--set "$field")
    done
    for option in "${REAL_LENGTHS[@]}"; do # what a frame takes follows from them
        case $option in
        *data.mm_processor_kwargs.min_pixels=*) PLAN_OPTIONS+=(--min-pixels "${option#*=}") ;;
        *data.mm_processor_kwargs.max_pixels=*) PLAN_OPTIONS+=(--max-pixels "${option#*=}") ;;
        esac
    done
    # GiB of processed images that an inference server keeps: those of all rollouts under way on it, by `vvt plan`. With a
    # model that it does not know vLLM's default stays.
    MM_CACHE_GB=${MM_CACHE_GB:-$("$PYTHON" -m verl_video_tools.cli plan --print mm-cache-gb --model "$MODEL_PATH" \
        --method "${PLAN_METHOD:-$METHOD}" ${PLAN_OPTIONS[@]+"${PLAN_OPTIONS[@]}"} \
        --gpus "$((NNODES * NDEVICES_PER_NODE))" --gpus-per-node "$NDEVICES_PER_NODE" --ulysses "$ULYSSES" \
        --tp "$ROLLOUT_TP" --batch-size "$TRAIN_BATCH_SIZE" --n "$ROLLOUT_N" --prompt-length "$MAX_PROMPT_LENGTH" \
        --response-length "$MAX_RESPONSE_LENGTH" || echo 4)}
    SETTING_OPTIONS=(
        actor_rollout_ref.rollout.max_num_batched_tokens="${MAX_BATCHED_TOKENS:-32768}"
        actor_rollout_ref.rollout.agent.num_workers="$AGENT_WORKERS" data.val_batch_size="$VAL_BATCH_SIZE"
        transfer_queue.backend.SimpleStorage.num_data_storage_units="$STORAGE_UNITS"
        +actor_rollout_ref.rollout.engine_kwargs.vllm.mm_processor_cache_gb="$MM_CACHE_GB"
        "${REAL_OPTIONS[@]}" "${REAL_LENGTHS[@]}" ${REAL_FIELDS[@]+"${REAL_FIELDS[@]}"})
else # the synthetic world: 56x56 frames of 4 tokens each, and the tiny model's own short prompt
    SFT_DIR=${SFT_DIR:-$OUTPUT_DIR/${METHOD}_sft}
    MODEL_PATH=${MODEL_PATH:-$SFT_DIR/huggingface}
    TRAIN_FILES=${TRAIN_FILES:-$DEMO_DIR/train.parquet}
    VAL_FILES=${VAL_FILES:-$DEMO_DIR/test.parquet}
    NDEVICES_PER_NODE=${NDEVICES_PER_NODE:-1}
    SAVE_FREQ=${SAVE_FREQ:-20}
    TOTAL_STEPS=${TOTAL_STEPS:-20}
    source "$REPO/recipes/synthetic.sh"
    collect_fields +actor_rollout_ref.rollout.custom.video_tools.
    SETTING_OPTIONS=(
        +trainer.video_tools.poll_interval_seconds=0.2 # steps of a tiny model are short
        "${FIELDS[@]}" ${SYNTHETIC_OPTIONS[@]+"${SYNTHETIC_OPTIONS[@]}"})
    # Whole weights in float32 beside the shards; verl's merger would round them. With LoRA they would bear PEFT's names.
    [ "$LORA_RANK" != 0 ] ||
        SETTING_OPTIONS+=(actor_rollout_ref.actor.checkpoint.save_contents='[model,optimizer,extra,hf_model]')
    if [ "$REHEARSE" != 0 ]; then
        collect_rehearsal_options
        SETTING_OPTIONS+=("${REHEARSAL_OPTIONS[@]}")
    else
        attention_options actor_rollout_ref.model
        SETTING_OPTIONS+=("${ATTENTION[@]}" "${CPU_PLAIN[@]}")
    fi
    make_demo
    if [ ! -f "$MODEL_PATH/config.json" ]; then
        [ "$MODEL_PATH" = "$SFT_DIR/huggingface" ] || { echo "MODEL_PATH=$MODEL_PATH holds no model" >&2; exit 2; }
        STAND_IN=$DEMO_DIR/base
        # What was set from outside is meant for this run, and a rehearsal for reinforcement learning.
        [ "$DRY_RUN" != 0 ] || supervised -- env -u REHEARSE -u PRESET -u TRAIN_FILES -u MODEL_PATH -u LEARNING_RATE -u TRAIN_BATCH_SIZE -u MICRO_BATCH_SIZE -u TOTAL_EPOCHS \
            -u SAVE_FREQ -u NNODES -u NDEVICES_PER_NODE -u EXPERIMENT_NAME -u LOGGER -u VERL_FILE_LOGGER_PATH -u FREEZE_VISION_TOWER -u LORA_RANK -u LORA_ALPHA \
            MAKE_DEMO=0 SYNTHETIC=1 SFT_DIR="$SFT_DIR" DEMO_DIR="$DEMO_DIR" BASE_FAMILY="$BASE_FAMILY" bash "${SFT_RECIPE:-$REPO/recipes/${METHOD}_sft.sh}"
    fi
fi

# ----------------------------------------------------------------------------------------------------- every method
DATA=(
    data.train_files="$(files "$TRAIN_FILES")" data.val_files="$(files "$VAL_FILES")" data.train_batch_size="$TRAIN_BATCH_SIZE"
    data.max_prompt_length="$MAX_PROMPT_LENGTH" data.max_response_length="$MAX_RESPONSE_LENGTH"
    data.filter_overlong_prompts=False data.truncation=error
)
MODEL=(actor_rollout_ref.model.path="$(quoted "$(located "$MODEL_PATH")")")
case $LORA_SYNC in
merged) merge=True ;;
adapter) merge=False ;;
*)
    echo "LORA_SYNC must be merged or adapter, got '$LORA_SYNC'" >&2
    exit 2
    ;;
esac
[ "$LORA_RANK" = 0 ] || MODEL+=( # the adapter leaves the vision tower alone, as in the cold start
    actor_rollout_ref.model.lora_rank="$LORA_RANK" actor_rollout_ref.model.lora_alpha="$LORA_ALPHA"
    actor_rollout_ref.model.target_modules=all-linear actor_rollout_ref.model.exclude_modules='.*visual.*'
    actor_rollout_ref.model.lora.merge=$merge)
ACTOR=(
    actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.ref.strategy=fsdp2
    actor_rollout_ref.actor.optim.lr="$LEARNING_RATE"
    actor_rollout_ref.actor.ppo_mini_batch_size="$MINI_BATCH_SIZE"
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu="$MICRO_BATCH_SIZE"
)
[ "$FREEZE_VISION_TOWER" = 0 ] || ACTOR+=(actor_rollout_ref.actor.freeze_vision_tower=True) # our trainers see to it
ROLLOUT=(
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n="$ROLLOUT_N"
    actor_rollout_ref.rollout.tensor_model_parallel_size="$ROLLOUT_TP"
    actor_rollout_ref.rollout.load_format=auto # `dummy` would leave buffers of vision towers unset
    actor_rollout_ref.rollout.max_model_len="$MAX_MODEL_LEN"
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu="$MICRO_BATCH_SIZE"
    actor_rollout_ref.ref.log_prob_micro_batch_size_per_gpu="$MICRO_BATCH_SIZE"
    +actor_rollout_ref.rollout.limit_images="$MAX_IMAGES"
    actor_rollout_ref.rollout.agent.agent_loop_config_path="$(quoted "${AGENT_LOOPS:-$("$PYTHON" -m verl_video_tools.config agent-loops)}")"
    actor_rollout_ref.rollout.agent.default_agent_loop="${METHODS[0]}"
)
REWARD=(
    reward.reward_manager.source=importlib reward.reward_manager.name=VideoToolsRewardManager
    reward.reward_manager.module.path=pkg://verl_video_tools.verl_plugin.reward_manager
)
ALGORITHM=(algorithm.adv_estimator=grpo algorithm.use_kl_in_reward=False ${CORRECTION[@]+"${CORRECTION[@]}"})
TRAINER=(
    trainer.v1.trainer_mode=video_tools
    trainer.project_name="$(quoted "$PROJECT_NAME")" trainer.experiment_name="$(quoted "$EXPERIMENT_NAME")"
    trainer.default_local_dir="$(quoted "$RUN_DIR")" trainer.logger="$LOGGER" trainer.val_before_train=False trainer.test_freq=-1
    trainer.nnodes="$NNODES" trainer.n_gpus_per_node="$NDEVICES_PER_NODE" trainer.save_freq="$SAVE_FREQ"
    trainer.max_actor_ckpt_to_keep=2 trainer.total_epochs="${TOTAL_EPOCHS:-10}" trainer.total_training_steps="$TOTAL_STEPS"
)

STOP_OPTIONS=() # the trainer looks for this file (STOP_FILE in verl_plugin/trainer.py)
[ "$SAVE_ON_SIGNAL" = 0 ] || STOP_OPTIONS=(--stop-file "$RUN_DIR/stop_requested")
train() { # [VERL_OPTION ...]
    collect_ray_options # anew for each part of a rehearsal, whose metrics have a file each
    local status options=("${DATA[@]}" "${MODEL[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "${REWARD[@]}" "${ALGORITHM[@]}" \
        "${TRAINER[@]}" "${METHOD_OPTIONS[@]}" "${SETTING_OPTIONS[@]}" "${CPU_RL[@]}" "${RAY_OPTIONS[@]}" "$@")
    dry_run grpo "${options[@]}"
    log_quietly "$RUN_DIR" ROLLOUT_N
    supervised "${QUIETLY[@]}" ${STOP_OPTIONS[@]+"${STOP_OPTIONS[@]}"} -- "$PYTHON" -m verl.trainer.main_ppo "${options[@]}" || {
        status=$?
        case $status in 129 | 130 | 143) exit $status ;; esac # a signal, not a lost node
        [ "${RAY_ADDRESS:-local}" = local ] || timeout 120 "$PYTHON" -m verl_video_tools.verl_plugin.lost_nodes >&2 || true
        exit $status
    }
}
same_run "$RUN_DIR"
train "$@"
[ "$REHEARSE" = 0 ] || resume_rehearsal "$@"

# ------------------------------------------------------------------------------------------------------------- result
told "$PYTHON" -m verl_video_tools.records.summary "$RUN_DIR/trajectories"
if [ -e "$RUN_DIR/latest_checkpointed_iteration.txt" ]; then # none after trainer.val_only=True
    "$PYTHON" -m verl_video_tools.verl_plugin.export_model "$RUN_DIR" "$RUN_DIR/huggingface"
fi
[ "$REHEARSE" = 0 ] || told report_rehearsal
