#!/usr/bin/env bash
# An English model from raw text to a folder that can be shipped; see english.md.
#
# Run as: bash recipes/english.sh OUT PRESET STEPS HELD_OUT.txt TEXT.txt...
# Optional environment variables:
#   VOCAB      model or file whose vocabulary is kept; by default the 150,000 most frequent words
#   SETTINGS   further settings ("--set optimizer.learning_rate=2e-3 ...")
#   REGISTERS  more held-out texts, each measured by itself ("held/*.txt")
# Finished steps are not repeated; a training run that was stopped is resumed.
set -euo pipefail
out=$1 preset=$2 steps=$3 valid=$4
shift 4
here=$(dirname "$0")
mkdir -p "$out"
words=(--max-vocab 150000)
[ -z "${VOCAB:-}" ] || words=(--vocab "$VOCAB")
[ -d "$out/data" ] || elmo prepare "$@" --valid-file "$valid" "${words[@]}" -o "$out/data"

run=$out/$preset
elmo train "$out/data" -o "$run" --preset "$preset" --max-steps "$steps" --resume --warm-state \
  --set log_every=500 --set evaluate_every=$((steps / 6 + 1)) --set checkpoint_every=$((steps / 6 + 1)) \
  ${SETTINGS:-}

measured() { # MODEL NAME
  [ -s "$run/$2.json" ] && return
  elmo perplexity "$out/data" --model "$1" --state all --json >"$run/$2.part"
  mv "$run/$2.part" "$run/$2.json"
}
measured "$run/model" float32
# Measured as it is shipped: int8 with one scale per row.
[ -d "$run/int8" ] || elmo convert "$run/model" "$run/int8" --storage int8 --part-size 45
measured "$run/int8" int8
if [ -n "${REGISTERS:-}" ] && [ ! -s "$run/registers.json" ]; then
  # shellcheck disable=SC2086  # a list of files
  python "$here/english/registers.py" "$run/int8" "$run/registers.json" "$valid" $REGISTERS
fi
