# Sourced by grpo.sh and sft.sh: how each method is set in the synthetic world. First looks are so sparse that most events
# of its videos hide between their frames, and turns are no longer than the tiny model needs.
synthetic_fields() { # METHOD: prints one field=value per line
    echo "prompt_file=$DEMO_DIR/prompts/$1.txt"
    case $1 in
    direct) printf '%s\n' initial_frames=8 ;;
    framethinker) printf '%s\n' max_turn_tokens=96 initial_frames_long=8 call_frames_long=8 answer_grading=choice ;;
    videozoomer) # the expert asks for at most 16 frames; the tiny model computes rates poorly, so twice as many pass
        printf '%s\n' max_turn_tokens=96 initial_frames=8 call_frames=32 ;;
    longvt) printf '%s\n' max_turn_tokens=128 initial_frames=8 call_frames=32 ;;
    videobrain) printf '%s\n' max_turn_tokens=96 initial_frames=8 ;;
    framemind) # a ladder for videos of 56x56 pixels
        printf '%s\n' max_turn_tokens=128 'low=[8,56]' 'high=[4,112]' tool_side_pixels=56 label_decimals=1 ;;
    *) echo "synthetic.sh: no method $1" >&2; return 2 ;;
    esac
}

# Fills the array FIELDS with PREFIX<method>.<field>=<value> for every method of METHODS.
collect_fields() { # PREFIX
    local method field
    FIELDS=()
    for method in "${METHODS[@]}"; do
        while read -r field; do
            [[ $1 != +* || $field != prompt_file=* ]] || field=prompt_file=$(quoted "${field#*=}") # for Hydra, not for vvt
            FIELDS+=("$1$method.$field")
        done < <(synthetic_fields "$method")
    done
}

# Videos and rows, unless MAKE_DEMO=0 says that DEMO_DIR already holds them, made with other options.
make_demo() {
    [ "${MAKE_DEMO:-1}" = 0 ] || vvt demo --out "$DEMO_DIR" "${METHODS[@]/#/--agent-name=}" --family "$BASE_FAMILY" \
        ${DEMO_OPTIONS[@]+"${DEMO_OPTIONS[@]}"}
}
