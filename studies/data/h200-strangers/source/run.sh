#!/usr/bin/env bash
# From the root of a copy of main, with $OUT set: bash gpu_stranger/run.sh   (README says what and how long)
set -u
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$PWD"
export PYTHONPATH="$root"
export PATH="$PATH:/usr/local/cuda/bin"
limit="${SECONDS_LEFT:-150}"
work="$(mktemp -d)"
res="$work/stranger"; mkdir -p "$res"
left() { echo $((limit - SECONDS)); }
note() { echo "$(printf '%4d s' $SECONDS) $*" | tee -a "$res/steps.txt"; }
part() {  # part NAME NEEDED_SECONDS COMMAND...: begins only what can end in time
  local name="$1" needed="$2"; shift 2
  if [ "$(left)" -lt "$needed" ]; then note "$name: left out, $(left) s left, $needed needed"; return 1; fi
  local began=$SECONDS
  timeout -k 5 "$(( $(left) - 4 ))" "$@" > "$res/$name.log" 2>&1
  local rc=$?
  note "$name: exit $rc, $((SECONDS - began)) s"
  return $rc
}
pack() { rm -f "$OUT/stranger.tar.xz"; tar -C "$work" -cf - stranger | xz -T0 -3 > "$OUT/stranger.tar.xz"; note "packed $(stat -c %s "$OUT/stranger.tar.xz") bytes"; }

cd "$here"
objects=()
pids=()
for f in main cases_memory cases_compute cases_blocks cases_gemm; do
  nvcc -std=c++17 -O3 -arch=sm_90 -lineinfo -c "$f.cu" -o "$work/$f.o" 2>> "$res/nvcc.log" & pids+=($!)
  objects+=("$work/$f.o")
done
for p in "${pids[@]}"; do wait "$p" || { note "nvcc failed"; cat "$res/nvcc.log"; pack; exit 1; }; done
nvcc -arch=sm_90 "${objects[@]}" -o "$work/strangers" >> "$res/nvcc.log" 2>&1 || { note "link failed"; cat "$res/nvcc.log"; pack; exit 1; }
note "compiled"
cd "$work"
{ nvcc --version | tail -2; ncu --version | tail -2; nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv; } > "$res/versions.txt" 2>&1
./strangers list > "$res/list.txt"

part check 10 ./strangers check
cp "$res/check.log" "$res/check.csv"; cat "$res/check.csv"

metrics="$(python3 -m perfml metrics default --request)"
recorded() {  # SIDE: README's line; the CSV is written from the report, which explain reads too
  timeout -k 5 "$(( $(left) - 4 ))" ncu --nvtx --clock-control none --metrics "$metrics" --force-overwrite --export "$res/$1" ./strangers "$1"
}
import() { ncu --import "$res/$1.ncu-rep" --csv --page raw > "$res/$1.csv"; }
export -f left recorded import; export metrics res limit
for side in before after; do
  if [ "$(left)" -ge 25 ]; then began=$SECONDS; recorded $side > "$res/ncu_$side.log" 2>&1; note "ncu_$side: exit $?, $((SECONDS - began)) s"; import $side 2>> "$res/ncu_$side.log"; fi
done
pack
for side in before after; do
  part collect_$side 20 python3 -m perfml collect --out "$res/run_$side" -- "$work/strangers" $side
  tail -8 "$res/collect_$side.log"
done
pack
export STRANGERS_COLD=1
for side in before after; do
  part full_$side 45 ncu --nvtx --clock-control none --set full --force-overwrite --export "$res/full_$side" ./strangers $side
done
size=$(du -sb "$res" | cut -f1); note "files together $size bytes"
pack
[ "$(stat -c %s "$OUT/stranger.tar.xz")" -gt 16000000 ] && { rm -f "$res"/full_*.ncu-rep; pack; }
cat "$res/steps.txt"
