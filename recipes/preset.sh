# Sourced by common.sh: the settings that PRESET names, for those variables that the environment leaves unset.
#
# PRESET is MODEL_MACHINE, of the files presets/models/MODEL.sh and presets/machines/MACHINE.sh, or a file presets/NAME.sh.
# They may read METHOD, STAGE and SYNTHETIC. docs/presets.md lists them.
STAGE=${BASH_SOURCE[-1]##*_} # of the recipe's own name: grpo, sft or rft
STAGE=${STAGE%.sh}
PRESETS=$REPO/recipes/presets

preset_names() { # one a line
    local file model machine
    for model in "$PRESETS"/models/*.sh; do
        for machine in "$PRESETS"/machines/*.sh; do
            model=${model##*/} machine=${machine##*/}
            echo "${model%.sh}_${machine%.sh}"
        done
    done
    for file in "$PRESETS"/*.sh; do
        file=${file##*/}
        echo "${file%.sh}"
    done
}

if [ -n "${PRESET:-}" ]; then
    # Not with -q, which ends before all names are written: with pipefail that is a failure.
    if ! preset_names | grep -xF -- "$PRESET" >/dev/null; then
        echo "PRESET must be one of $(preset_names | paste -sd ' '), got '$PRESET'" >&2
        exit 2
    fi
    if [ -f "$PRESETS/$PRESET.sh" ]; then
        source "$PRESETS/$PRESET.sh"
    else # the synthetic world has a model of its own, and RFT starts from the RL checkpoint
        if [ "$SYNTHETIC" = 0 ] && [ "$STAGE" != rft ]; then source "$PRESETS/models/${PRESET%%_*}.sh"; fi
        source "$PRESETS/machines/${PRESET#*_}.sh"
    fi
fi
