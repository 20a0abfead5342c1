#!/bin/bash
# build.sh OUT [CUDNN_INCLUDE CUDNN_LIB]: Darknet with GPU=1 as a program of layers.c. Run it in the
# root of Darknet's sources with layers.c beside; nvcc on PATH. CUDA 13 without OpenGL: take
# `#include <cuda_gl_interop.h>` out of src/dark_cuda.h, and network_predict_gpu_gl_texture out of
# src/network_kernels.cu.
# CUDA_HOME, CUDA_INCLUDES (-I...), CUDA_LIBS (-L...) and JOBS are heeded.
set -eu
out="$1"; cudnn_include="${2:-}"; cudnn_lib="${3:-}"
obj="$(mktemp -d)"
home="${CUDA_HOME:-/usr/local/cuda}"
flags="-Iinclude -Isrc -I3rdparty/stb/include -DGPU ${CUDA_INCLUDES:-} -I$home/include"
[ -n "$cudnn_include" ] && flags="$flags -DCUDNN -I$cudnn_include"
names="$(grep '^OBJ[+]\?=' Makefile | head -2 | sed 's/^OBJ[+]*=//' | tr ' ' '\n' | sed 's/\.o$//' | grep -v '^darknet$')"
for name in $names layers; do
  if [ -f src/$name.cu ]; then
    echo "nvcc -O2 -w -arch=sm_90 -Xcompiler -fPIC $flags -c src/$name.cu -o $obj/$name.o"
  elif [ -f src/$name.cpp ]; then
    echo "g++ -O2 -w -fPIC $flags -c src/$name.cpp -o $obj/$name.o"
  elif [ $name = layers ]; then
    echo "gcc -O3 -mavx2 -mfma -w -fPIC $flags -c layers.c -o $obj/layers.o"
  else
    echo "gcc -O3 -mavx2 -mfma -w -fPIC $flags -c src/$name.c -o $obj/$name.o"
  fi
done > "$obj/jobs"
xargs -P "${JOBS:-16}" -I{} sh -c '{} || exit 255' < "$obj/jobs"
nvcc -arch=sm_90 -o "$out" "$obj"/*.o ${CUDA_LIBS:-} ${cudnn_lib:+-L$cudnn_lib -l:libcudnn.so.9} -l:libcublas.so.13 -l:libcurand.so.10 -l:libcuda.so.1 -lstdc++ -lm -lpthread
echo "built $out"
