#!/usr/bin/env bash
# Run all checks that need a GPU: the tests, the throughput of training and embedding, killing and
# resuming a run, training a head for weights without one, and a batch that exceeds the memory.
# This takes about 6 minutes on one H200. Parts with existing results are skipped.
#
# Needs: one CUDA GPU, a prepared corpus DATA (see english.md) and a small text (a few MB).
# Run as: bash recipes/gpu-checks.sh OUT DATA TEXT.txt
#         ONLY=kill.txt,reader.json bash recipes/gpu-checks.sh ...     (only these parts)
set -uo pipefail
out=$(realpath -m "$1") data=$2 text=$3
here=$(cd "$(dirname "$0")/.." && pwd)
mkdir -p "$out"

part() { # NAME COMMAND...: write the output of the command to OUT/NAME
  local name=$1
  shift
  [[ -s "$out/$name" || ",${ONLY:-$name}," != *",$name,"* ]] && return
  echo "== $name $(date +%T)" >&2
  "$@" >"$out/$name.part" 2> >(tee "$out/$name.err" >&2) && mv "$out/$name.part" "$out/$name"
}

part train-original.json elmo bench train --preset original --rows 128,512,1024,2048,3072 \
  --data "$data" --json
part train-original-zipf.json elmo bench train --preset original --rows 128,1024 --json
part train-medium.json elmo bench train --preset medium --rows 128,1024,4096 --data "$data" --json
part reader.json python "$here/benchmarks/gpu_reader.py" original
part embed.json elmo bench embed --preset original --device cuda --batch 1,128,1024 \
  --rounds 3 --tokens 40000 --text "$text" --json
part kill.txt bash "$here/recipes/gpu-kill.sh" "$out/kill" "$text"

finetune() {
  elmo convert english "$out/bare" --to hdf5 --overwrite >&2 &&
    elmo prepare "$text" --valid 0.1 -o "$out/domain" >&2 &&
    elmo finetune "$out/bare" "$out/domain" -o "$out/tuned" --max-steps 300 --set step.rows=128 \
      --set log_every=50 --json
}
part finetune.json finetune

too_large() { # must fail with an error message that says what to do
  ! elmo train "$data" -o "$out/large" --preset original --max-steps 2 --set step.rows=65536 2>&1
}
part too-large.txt too_large

tests() { (cd "$here" && python -m pytest -q -m gpu tests); }
part tests.txt tests
