#!/usr/bin/env bash
# From the root of a copy of main, with $OUT set: bash gpu_stranger2/run.sh   (README says what and how long)
set -u
here="$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)"
root="$PWD"
export PYTHONPATH="$root"
export PATH="$PATH:/usr/local/cuda/bin"
limit="${SECONDS_LEFT:-150}"
work="$(mktemp -d)"
res="$work/stranger2"; mkdir -p "$res"
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
pack() { rm -f "$OUT/stranger2.tar.xz"; tar -C "$work" -cf - stranger2 | xz -T0 -3 > "$OUT/stranger2.tar.xz"; note "packed $(stat -c %s "$OUT/stranger2.tar.xz") bytes"; }

cd "$here"
cp labels.json FROZEN halves.json "$res/"
sha256sum -c FROZEN.sha256 >> "$res/steps.txt" 2>&1 || note "labels.json is not the frozen one"
objects=()
pids=()
for f in main cases_sparse cases_maths cases_flow cases_two cases_equal cases_library; do
  nvcc -std=c++17 -O3 -arch=sm_90 -lineinfo -c "$f.cu" -o "$work/$f.o" 2>> "$res/nvcc.log" & pids+=($!)
  objects+=("$work/$f.o")
done
for p in "${pids[@]}"; do wait "$p" || { note "nvcc failed"; cat "$res/nvcc.log"; pack; exit 1; }; done
nvcc -arch=sm_90 "${objects[@]}" -ldl -o "$work/strangers2" >> "$res/nvcc.log" 2>&1 || { note "link failed"; cat "$res/nvcc.log"; pack; exit 1; }
note "compiled"
cd "$work"
# cuBLAS is opened at run time: the toolkit's own if it is there, else the one that torch brings.
for so in /usr/local/cuda/lib64/libcublas.so.1[0-9] $(python3 -c "
import glob, site, sysconfig
for place in dict.fromkeys(site.getsitepackages() + [sysconfig.get_paths()['purelib']]):
    for found in sorted(glob.glob(place + '/nvidia/*/lib/libcublas.so.1?')): print(found)" 2>/dev/null); do
  if [ -e "$so" ]; then export STRANGERS_CUBLAS="$so" LD_LIBRARY_PATH="$(dirname "$so"):${LD_LIBRARY_PATH:-}"; break; fi
done
{ nvcc --version | tail -2; ncu --version | tail -2; echo "cublas: ${STRANGERS_CUBLAS:-none found}"; nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv; } > "$res/versions.txt" 2>&1
./strangers2 list > "$res/list.txt"
note "$(wc -l < "$res/list.txt") cases, cublas: ${STRANGERS_CUBLAS:-none found}"

# A case that ends the program is left out and the rest is checked on; only checked cases are recorded.
mapfile -t todo < "$res/list.txt"
good=()
: > "$res/check.csv"
for try in 1 2 3 4; do
  [ "${#todo[@]}" -eq 0 ] && break
  part "check_$try" 10 ./strangers2 check "${todo[@]}"
  grep -E '^[a-z0-9_]+,' "$res/check_$try.log" >> "$res/check.csv"
  rest=()
  for name in "${todo[@]}"; do if grep -q "^$name,.*,.*,.*," "$res/check_$try.log"; then good+=("$name"); else rest+=("$name"); fi; done
  [ "${#rest[@]}" -gt 0 ] && note "ended the program, left out: ${rest[0]}"
  todo=("${rest[@]:1}")
done
awk '!seen[$0]++' "$res/check.csv" > "$res/check.tmp" && mv "$res/check.tmp" "$res/check.csv"; cat "$res/check.csv"
[ "${#good[@]}" -gt 0 ] || { note "no case could be checked"; pack; exit 1; }

metrics="$(python3 -m perfml metrics default --request)"
recorded() {  # SIDE FLAG...: README's line; the CSV is written from the report, which explain reads too
  local side="$1"; shift
  timeout -k 5 "$(( $(left) - 4 ))" ncu --nvtx --clock-control none --metrics "$metrics" "$@" --force-overwrite --export "$res/$side" ./strangers2 "$side" "${good[@]}"
}
import() { timeout -k 5 60 ncu --import "$res/$1.ncu-rep" --csv --page raw > "$res/$1.csv"; }
profiled() {  # SIDE: the warm-up launches are left out by the program's own marks; once more without if that gave nothing
  local began=$SECONDS
  STRANGERS_MARK=1 recorded "$1" --profile-from-start off > "$res/ncu_$1.log" 2>&1
  note "ncu_$1: exit $?, $((SECONDS - began)) s"
  import "$1" 2>> "$res/ncu_$1.log"
  if [ "$(wc -l < "$res/$1.csv")" -lt 20 ] && [ "$(left)" -ge 30 ]; then
    began=$SECONDS; recorded "$1" >> "$res/ncu_$1.log" 2>&1; note "ncu_$1 again, with the warm-up: exit $?, $((SECONDS - began)) s"; import "$1" 2>> "$res/ncu_$1.log"
  fi
}
for side in before after; do
  if [ "$(left)" -ge 30 ]; then profiled $side; pack; else note "ncu_$side: left out, $(left) s left"; fi
done
for side in before after; do
  part collect_$side 25 python3 -m perfml collect --out "$res/run_$side" -- "$work/strangers2" $side "${good[@]}"
  tail -8 "$res/collect_$side.log"
done
size=$(du -sb "$res" | cut -f1); note "files together $size bytes"
pack
[ "$(stat -c %s "$OUT/stranger2.tar.xz")" -gt 16000000 ] && { rm -f "$res"/*.ncu-rep; pack; }
cat "$res/steps.txt"
