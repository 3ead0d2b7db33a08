# Sourced at the end of a method's GRPO recipe: runs verl's trainer with what all methods share, then shows the result.
# Needs METHOD, RUN_DIR, LIMIT_IMAGES, the variables below, and the arrays METHOD_OPTIONS and SETTING_OPTIONS, which win
# over what stands here; arguments of the recipe win over all.
DATA=(
    data.train_files="$TRAIN_FILES" data.val_files="$VAL_FILES" data.train_batch_size="$TRAIN_BATCH_SIZE"
    data.max_prompt_length="$MAX_PROMPT_LENGTH" data.max_response_length="$MAX_RESPONSE_LENGTH"
    data.filter_overlong_prompts=False data.truncation=error
)
MODEL=(actor_rollout_ref.model.path="$MODEL_PATH")
ACTOR=(
    actor_rollout_ref.actor.strategy=fsdp2 actor_rollout_ref.ref.strategy=fsdp2
    actor_rollout_ref.actor.optim.lr="$LEARNING_RATE"
    actor_rollout_ref.actor.ppo_mini_batch_size="${MINI_BATCH_SIZE:-$TRAIN_BATCH_SIZE}"
    actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu="$MICRO_BATCH_SIZE"
    actor_rollout_ref.actor.use_kl_loss=False actor_rollout_ref.actor.entropy_coeff=0.0
)
ROLLOUT=(
    actor_rollout_ref.rollout.name=vllm actor_rollout_ref.rollout.n="$ROLLOUT_N"
    actor_rollout_ref.rollout.tensor_model_parallel_size="$ROLLOUT_TP"
    actor_rollout_ref.rollout.load_format=auto # `dummy` would leave buffers of vision towers unset
    actor_rollout_ref.rollout.max_model_len="$MAX_MODEL_LEN"
    actor_rollout_ref.rollout.log_prob_micro_batch_size_per_gpu="$MICRO_BATCH_SIZE"
    +actor_rollout_ref.rollout.limit_images="$LIMIT_IMAGES"
    actor_rollout_ref.rollout.agent.agent_loop_config_path="$("$PYTHON" -m verl_video_tools.config agent-loops)"
    actor_rollout_ref.rollout.agent.default_agent_loop="$METHOD"
)
REWARD=(
    reward.reward_manager.source=importlib reward.reward_manager.name=VideoToolsRewardManager
    reward.reward_manager.module.path=pkg://verl_video_tools.rewards.manager
)
ALGORITHM=(algorithm.adv_estimator=grpo algorithm.use_kl_in_reward=False)
TRAINER=(
    trainer.v1.trainer_mode=video_tools trainer.project_name="$PROJECT_NAME" trainer.experiment_name="$EXPERIMENT_NAME"
    trainer.default_local_dir="$RUN_DIR" trainer.logger="$LOGGER" trainer.val_before_train=False trainer.test_freq=-1
    trainer.nnodes="$NNODES" trainer.n_gpus_per_node="$NDEVICES_PER_NODE" trainer.save_freq="$SAVE_FREQ" trainer.max_actor_ckpt_to_keep=2 trainer.total_epochs=10
    trainer.total_training_steps="$TOTAL_STEPS"
)

"$PYTHON" -m verl.trainer.main_ppo "${DATA[@]}" "${MODEL[@]}" "${ACTOR[@]}" "${ROLLOUT[@]}" "${REWARD[@]}" \
    "${ALGORITHM[@]}" "${TRAINER[@]}" "${METHOD_OPTIONS[@]}" "${SETTING_OPTIONS[@]}" "${CPU_RL[@]}" "$@"

# ------------------------------------------------------------------------------------------------------------- result
"$PYTHON" -m verl_video_tools.trace.summary "$RUN_DIR/trajectories"
"$PYTHON" -m verl_video_tools.data.export_model "$RUN_DIR" "$RUN_DIR/huggingface"
