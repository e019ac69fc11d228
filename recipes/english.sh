#!/usr/bin/env bash
# Train an English model on raw text, and convert it for distribution. See english.md.
#
# Run as: bash recipes/english.sh OUT PRESET STEPS HELD_OUT.txt TEXT.txt...
# Optional environment variables:
#   VOCAB      model or file whose vocabulary is used (default: the 150,000 most frequent words)
#   SETTINGS   additional settings ("--set optimizer.learning_rate=2e-3 ...")
#   REGISTERS  additional held-out texts, each evaluated separately ("held/*.txt")
# Finished steps are not repeated. An interrupted training run is resumed.
set -euo pipefail
out=$1 preset=$2 steps=$3 valid=$4
shift 4
here=$(dirname "$0")
mkdir -p "$out"
vocabulary=(--max-vocab 150000)
[ -z "${VOCAB:-}" ] || vocabulary=(--vocab "$VOCAB")
[ -d "$out/data" ] || elmo prepare "$@" --valid-file "$valid" "${vocabulary[@]}" -o "$out/data"

run=$out/$preset
elmo train "$out/data" -o "$run" --preset "$preset" --max-steps "$steps" --resume --warm-state \
  --set log_every=500 --set evaluate_every=$((steps / 6 + 1)) --set checkpoint_every=$((steps / 6 + 1)) \
  ${SETTINGS:-}

evaluate() { # MODEL NAME
  [ -s "$run/$2.json" ] && return
  elmo perplexity "$out/data" --model "$1" --state all --json >"$run/$2.part"
  mv "$run/$2.part" "$run/$2.json"
}
evaluate "$run/model" float32
# Evaluate the distributed weights: int8 with one scale per row.
[ -d "$run/int8" ] || elmo convert "$run/model" "$run/int8" --storage int8 --part-size 45
evaluate "$run/int8" int8
if [ -n "${REGISTERS:-}" ] && [ ! -s "$run/registers.json" ]; then
  # shellcheck disable=SC2086  # a list of files
  python "$here/english/registers.py" "$run/int8" "$run/registers.json" "$valid" $REGISTERS
fi
