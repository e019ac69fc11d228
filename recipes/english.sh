#!/usr/bin/env bash
# An English model from raw text to a folder that can be shipped; see english.md.
#
# Run as: bash recipes/english.sh OUT PRESET STEPS HELD_OUT.txt TEXT.txt...
# What is finished is not done again; a training that was stopped goes on.
set -euo pipefail
out=$1 preset=$2 steps=$3 valid=$4
shift 4
mkdir -p "$out"
[ -d "$out/data" ] || elmo prepare "$@" --valid-files "$valid" --max-vocab 150000 -o "$out/data"

run=$out/$preset
# SETTINGS adds others ("--set optimizer.learning_rate=2e-3 ...").
elmo train "$out/data" -o "$run" --preset "$preset" --max-steps "$steps" --resume \
  --set log_every=500 --set evaluate_every=$((steps / 6 + 1)) --set checkpoint_every=0 \
  ${SETTINGS:-}

elmo evaluate "$out/data" --model "$run/model" --state all --json >"$run/float32.json"
# What is shipped, and measured as it is shipped: int8 with a scale per row.
elmo convert "$run/model" "$run/int8" --storage int8 --part-size 45 --overwrite
elmo evaluate "$out/data" --model "$run/int8" --state all --json >"$run/int8.json"
