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
  --set log_every=500 --set evaluate_every=$((steps / 6 + 1)) --set checkpoint_every=$((steps / 6 + 1)) \
  ${SETTINGS:-}

measured() { # MODEL NAME
  [ -s "$run/$2.json" ] && return
  elmo evaluate "$out/data" --model "$1" --state all --json >"$run/$2.part"
  mv "$run/$2.part" "$run/$2.json"
}
measured "$run/model" float32
# What is shipped, and measured as it is shipped: int8 with a scale per row.
[ -d "$run/int8" ] || elmo convert "$run/model" "$run/int8" --storage int8 --part-size 45
measured "$run/int8" int8
