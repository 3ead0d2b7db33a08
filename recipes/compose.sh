# Sourced by compose_grpo.sh and compose_sft.sh: the composition COMPOSE, checked before anything starts. Defines
# FILE_PROMPT_TOKENS, FILE_RESPONSE_TOKENS and FILE_IMAGES, which it reserves for a rollout.
COMPOSE=${COMPOSE:-$([ "$SYNTHETIC" = 0 ] && echo default || echo demo)}
export COMPOSE # the cold start within a run is of the same one
[ ! -f "$COMPOSE" ] || COMPOSE=$(realpath "$COMPOSE") # workers may run in another folder
file_limits=$("$PYTHON" -m verl_video_tools.methods.compose --limits "$COMPOSE") || exit $?
[ "$COMPOSE" != spatial ] || DEMO_OPTIONS=(--spatial) # the videos that its tools are for
read -r FILE_PROMPT_TOKENS FILE_RESPONSE_TOKENS FILE_IMAGES <<<"$file_limits"
