// Code that is inlined twice deep, for perfml/readers/ncu/inlined.py:
// nvcc -cubin -lineinfo -arch=sm_90 -o inlined.cubin inlined.cu
__device__ __forceinline__ float twice(const float* at) {
  return 2.0f * *at;
}
__device__ __forceinline__ float more(const float* at) {
  return twice(at) + 1.0f;
}
extern "C" __global__ void sums(const float* in, float* out) {
  const float one = more(in + threadIdx.x);
  const float two = twice(in + threadIdx.x + 4096);
  out[threadIdx.x] = one * two;
}
extern "C" __global__ void counts(int* out) {
  atomicAdd(out, 1);
}
