# Sourced by grpo.sh and sft.sh: how each method is set in the synthetic world, by the file synthetic.txt in its folder.
# A recipe of another package says where its own method's is: METHOD_DIR.
# First looks are so sparse that most events of its videos hide between their frames, and turns are no longer than the
# tiny model needs.
synthetic_fields() { # METHOD: prints one field=value per line
    echo "prompt_file=$DEMO_DIR/prompts/$1.txt"
    local folder=$REPO/verl_video_tools/methods/$1
    if [ "$1" = "$METHOD" ]; then folder=${METHOD_DIR:-$folder}; fi
    grep -v '^#' "$folder/synthetic.txt"
    [ "$1" != compose ] || echo "file=${COMPOSE:-demo}"
}

# Fills the array FIELDS with PREFIX<method>.<field>=<value> for every method of METHODS.
collect_fields() { # PREFIX
    local method field
    FIELDS=()
    for method in "${METHODS[@]}"; do
        while read -r field; do
            [[ $1 != +* || $field != *file=* ]] || field=${field%%=*}=$(quoted "${field#*=}") # for Hydra, not for vvt
            FIELDS+=("$1$method.$field")
        done < <(synthetic_fields "$method")
    done
}

# Fills the array ATTENTION, with the options below PREFIX. flash-attn is no part of `make install`, and `make demo` needs
# none on a GPU either. On a CPU, packed rows cost 4/5 of the time of padded ones; the name is that of
# verl_plugin/platforms/cpu_attention.py.
attention_options() { # PREFIX
    local packed=True name=packed_by_torch
    [ "$DEVICE" = cpu ] || { packed=False name=sdpa; }
    ATTENTION=("$1.use_remove_padding=$packed" "+$1.override_config.attn_implementation=$name")
}

# Videos and rows, unless MAKE_DEMO=0 says that DEMO_DIR already holds them, made with other options.
make_demo() {
    [ "${MAKE_DEMO:-1}" = 0 ] || VVT_TINY_MODELS=${VVT_TINY_MODELS:-$REPO/examples/tiny_models} vvt demo --out "$DEMO_DIR" "${METHODS[@]/#/--agent-name=}" --family "$BASE_FAMILY" \
        ${DEMO_OPTIONS[@]+"${DEMO_OPTIONS[@]}"}
}
