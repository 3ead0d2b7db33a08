#!/usr/bin/env bash
# Submits a recipe as a job to a running Ray cluster and follows its log; the exit code is the job's.
#
#   RAY_API_SERVER_ADDRESS=http://<head>:8265 bash examples/ray_job/submit.sh \
#       OUTPUT_DIR=/shared/outputs MODEL_PATH=/shared/models/cold-started TRAIN_FILES=/shared/train.parquet NNODES=2 \
#       framethinker_grpo trainer.total_training_steps=200
#
# Variables of the recipe first, then its name, or the path of your own, then its arguments. Submitted again, it resumes
# from the last checkpoint.
set -euo pipefail
from=$PWD
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

variables=()
while [[ ${1:-} =~ ^[A-Z][A-Z0-9_]*= ]]; do
    variables+=("$1")
    shift
done
recipe=${1:?name of a recipe, such as framethinker_grpo}
[[ $recipe = *.sh ]] || recipe=recipes/$recipe.sh
shift
[ -f "$recipe" ] || { echo "submit.sh: there is no $recipe" >&2; exit 2; }
# The job runs in a copy of this folder that goes away with it.
[[ " ${variables[*]-} " == *" OUTPUT_DIR=/"* ]] || {
    echo "submit.sh: OUTPUT_DIR must be an absolute path that every node sees: checkpoints go there" >&2
    exit 2
}
for variable in "${variables[@]}"; do
    name=${variable%%=*} value=${variable#*=}
    case $name in
    TRAIN_FILES | VAL_FILES) [[ $value = /* || $value = \[* ]] && continue ;;
    MODEL_PATH) [[ $value = /* || ! -e $from/$value ]] && continue ;; # else a name of the Hub
    *) continue ;;
    esac
    echo "submit.sh: $variable: give an absolute path that every node sees, for the job runs in another folder" >&2
    exit 2
done
exec ray job submit --runtime-env examples/ray_job/runtime_env.yaml -- env "${variables[@]}" bash "$recipe" "$@"
