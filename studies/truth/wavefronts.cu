// What a request to L1 costs, by where its lanes are: loads that all hit, as many as fit.
//
// A row a launch: width of a load, lanes that share an address, bytes to the next address (0: drawn
// at random in the table). Nsight Compute counts the launches in the order in which they are
// printed; benchmarks/results/wavefronts-h200.csv has both, a request's sectors, wavefronts and
// cycles of a multiprocessor (1.68 where its four parts do not issue more).
//
//   nvcc -std=c++17 -O3 -arch=native -o wavefronts wavefronts.cu && ncu --clock-control none
//   --cache-control none --csv --page raw --metrics sm__cycles_active.avg,
//   l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum,l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum,
//   l1tex__data_pipe_lsu_wavefronts.sum,l1tex__t_output_wavefronts_pipe_lsu_mem_global_op_ld.sum,
//   smsp__average_warps_issue_stalled_lg_throttle_per_issue_active.ratio ./wavefronts
#include <cstdint>
#include <cstdio>
#include <cstdlib>

#define CHECK(call)                                                          \
  do {                                                                       \
    const cudaError_t error = (call);                                        \
    if (error != cudaSuccess) {                                              \
      fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(error));         \
      exit(1);                                                               \
    }                                                                        \
  } while (0)

constexpr unsigned kTable = 32768, kLine = 128;

template <int Width>
__device__ __forceinline__ unsigned load(const char* at) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (Width == 1) asm volatile("ld.global.ca.u8 %0, [%1];" : "=r"(a) : "l"(at));
  if (Width == 4) asm volatile("ld.global.ca.u32 %0, [%1];" : "=r"(a) : "l"(at));
  if (Width == 8) asm volatile("ld.global.ca.v2.u32 {%0,%1}, [%2];" : "=r"(a), "=r"(b) : "l"(at));
  if (Width == 16) {
    asm volatile("ld.global.ca.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(a), "=r"(b), "=r"(c), "=r"(d)
                 : "l"(at));
  }
  return a ^ b ^ c ^ d;
}

template <int Width>
__global__ void __launch_bounds__(1024) gather(const char* table, unsigned share, unsigned stride,
                                               int steps, unsigned* out) {
  const unsigned lane = threadIdx.x % 32 / share, warp = threadIdx.x / 32;
  unsigned at = lane * stride;
  if (stride == 0) {
    unsigned h = (lane + 32 * warp + 1) * 2654435761u;
    h = (h ^ (h >> 15)) * 2246822519u;
    at = ((h ^ (h >> 13)) / Width * Width) & (kTable - 1);
  }
  unsigned sum = 0;
#pragma unroll 1
  for (int i = 0; i < steps; ++i) {
#pragma unroll
    for (unsigned k = 0; k < 8; ++k) {
      const unsigned hop = (i * 8 + k + warp) * 3 * kLine;
      sum ^= load<Width>(table + ((at + hop) & (kTable - 1)));
    }
  }
  out[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}

struct Pattern {
  int width;
  unsigned share, stride;
};

int main() {
  int count = 0;
  CHECK(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  char* table;
  unsigned* out;
  CHECK(cudaMalloc(&table, kTable + 4096));
  CHECK(cudaMemset(table, 1, kTable + 4096));
  CHECK(cudaMalloc(&out, count * 2048 * sizeof(unsigned)));
  const Pattern patterns[] = {
      {4, 32, 4},  {4, 1, 4},   {4, 1, 8},   {4, 1, 16},  {4, 1, 32},  {4, 1, 64},  {4, 1, 128},
      {4, 1, 36},  {4, 1, 132}, {4, 1, 260}, {4, 2, 128}, {4, 4, 128}, {4, 8, 128}, {4, 16, 128},
      {4, 1, 0},   {4, 2, 0},   {4, 4, 0},   {4, 8, 0},   {4, 16, 0},  {4, 8, 132}, {4, 4, 132},
      {4, 4, 36},  {4, 2, 36},  {1, 1, 1},   {1, 1, 5},   {1, 1, 17},  {1, 1, 3},   {8, 1, 8},
      {8, 1, 16},  {8, 1, 64},  {8, 1, 0},   {16, 1, 16}, {16, 1, 32}, {16, 1, 48}, {16, 1, 128},
      {16, 1, 0},  {16, 4, 0},  {4, 1, 20},  {4, 1, 12},
  };
  printf("width,share,stride\n");
  for (const Pattern& p : patterns) {
    const int steps = 512;
    const dim3 grid(2 * count), block(1024);
    if (p.width == 1) gather<1><<<grid, block>>>(table, p.share, p.stride, steps, out);
    if (p.width == 4) gather<4><<<grid, block>>>(table, p.share, p.stride, steps, out);
    if (p.width == 8) gather<8><<<grid, block>>>(table, p.share, p.stride, steps, out);
    if (p.width == 16) gather<16><<<grid, block>>>(table, p.share, p.stride, steps, out);
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());
    printf("%d,%u,%u\n", p.width, p.share, p.stride);
  }
  return 0;
}
