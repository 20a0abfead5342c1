// A CUDA C++ program that repeats itself: ./repeats ITERATIONS [WHAT]
//
// Each iteration, an NVTX range called iter_0, iter_1, ..., launches four kernels. WHAT changes it:
// streams (two streams and an event), contexts (a second context), graph (the kernels in a CUDA
// graph), odd (every third iteration launches another grid), crash (the program ends by a signal in
// its fifth iteration), sleep (it hangs there), pairs (cudaProfilerStart and Stop, no ranges),
// captured (an iteration also captures a graph that is never launched), refused (it also makes a
// launch that the driver refuses), fork (a child ends by exit in the fifth iteration), parts (counted
// anew after every three iterations, and then with other grids).
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>

#include <cuda.h>
#include <cuda_profiler_api.h>
#include <nvtx3/nvToolsExt.h>
#include <sys/wait.h>
#include <unistd.h>

#define CHECK(call)                                                        \
  do {                                                                     \
    cudaError_t status = (call);                                           \
    if (status != cudaSuccess) {                                           \
      std::fprintf(stderr, "%s: %s\n", #call, cudaGetErrorString(status)); \
      std::exit(1);                                                        \
    }                                                                      \
  } while (0)

__global__ void scale(float* values, float factor, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) values[i] *= factor;
}

__global__ void add(float* sum, const float* values, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) sum[i] += values[i];
}

__global__ void reduce(const float* values, float* total, int count) {
  extern __shared__ float partial[];
  float mine = 0.0f;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    mine += values[i];
  partial[threadIdx.x] = mine;
  __syncthreads();
  for (int step = blockDim.x / 2; step > 0; step /= 2) {
    if (threadIdx.x < step) partial[threadIdx.x] += partial[threadIdx.x + step];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(total, partial[0]);
}

struct Memory {
  float *values = nullptr, *sum = nullptr, *total = nullptr;
};

constexpr int kCount = 1 << 20;

Memory allocate() {
  Memory memory;
  CHECK(cudaMalloc(&memory.values, kCount * sizeof(float)));
  CHECK(cudaMalloc(&memory.sum, kCount * sizeof(float)));
  CHECK(cudaMalloc(&memory.total, sizeof(float)));
  CHECK(cudaMemset(memory.values, 0x3f, kCount * sizeof(float)));
  CHECK(cudaMemset(memory.sum, 0, kCount * sizeof(float)));
  CHECK(cudaMemset(memory.total, 0, sizeof(float)));
  return memory;
}

void launch(const Memory& memory, cudaStream_t first, cudaStream_t second, int blocks) {
  nvtxRangePushA("update");
  scale<<<blocks, 256, 0, first>>>(memory.values, 0.5f, kCount);
  add<<<blocks, 256, 0, first>>>(memory.sum, memory.values, kCount);
  nvtxRangePop();
  if (first != second) {
    static cudaEvent_t event = nullptr;
    if (!event) CHECK(cudaEventCreate(&event));
    CHECK(cudaEventRecord(event, first));
    CHECK(cudaStreamWaitEvent(second, event));
  }
  nvtxRangePushA("reduce");
  reduce<<<264, 256, 1024, second>>>(memory.sum, memory.total, kCount);
  reduce<<<132, 512, 2048, second>>>(memory.values, memory.total, kCount);
  nvtxRangePop();
}

int main(int words, char** word) {
  const int iterations = words > 1 ? std::atoi(word[1]) : 3;
  const std::string what = words > 2 ? word[2] : "";
  Memory memory = allocate();
  cudaStream_t first = nullptr, second = nullptr;
  if (what == "streams" || what == "graph" || what == "captured") CHECK(cudaStreamCreate(&first));
  second = first;
  if (what == "streams") CHECK(cudaStreamCreate(&second));
  cudaGraphExec_t graph = nullptr;
  if (what == "graph") {
    cudaGraph_t captured = nullptr;
    CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
    launch(memory, first, first, kCount / 256);
    CHECK(cudaStreamEndCapture(first, &captured));
    CHECK(cudaGraphInstantiate(&graph, captured, 0));
  }
  CUcontext own = nullptr, other = nullptr;
  Memory elsewhere;
  if (what == "contexts") {
    cuCtxGetCurrent(&own);
    CUdevice device = 0;
    cuCtxGetDevice(&device);
    if (cuCtxCreate(&other, nullptr, 0, device) != CUDA_SUCCESS) return 1;
    elsewhere = allocate();
    cuCtxSetCurrent(own);
  }
  for (int i = 0; i < iterations; ++i) {
    const std::string name = "iter_" + std::to_string(what == "parts" ? i % 3 : i);
    if (what == "pairs") CHECK(cudaProfilerStart());
    else nvtxRangePushA(name.c_str());
    if (what == "crash" && i == 5) std::abort();
    if (what == "sleep" && i == 5) sleep(600);
    if (what == "fork" && i == 5) {
      const pid_t child = fork();
      if (child == 0) std::exit(0);
      waitpid(child, nullptr, 0);
    }
    if (what == "captured") {
      cudaGraph_t unused = nullptr;
      CHECK(cudaStreamBeginCapture(first, cudaStreamCaptureModeGlobal));
      scale<<<8, 256, 0, first>>>(memory.values, 0.5f, kCount);
      CHECK(cudaStreamEndCapture(first, &unused));
      CHECK(cudaGraphDestroy(unused));
    }
    if (what == "refused") {
      scale<<<8, 2048>>>(memory.values, 0.5f, kCount);
      if (cudaGetLastError() == cudaSuccess) return 1;
    }
    const int blocks = kCount / 256 - (what == "odd" && i % 3 == 0 ? 1 : 0) +
                       (what == "parts" ? i / 3 : 0);
    if (graph) CHECK(cudaGraphLaunch(graph, first));
    else launch(memory, first, second, blocks);
    if (other) {
      cuCtxSetCurrent(other);
      launch(elsewhere, nullptr, nullptr, blocks);
      cuCtxSetCurrent(own);
    }
    if (what == "pairs") CHECK(cudaProfilerStop());
    else nvtxRangePop();
  }
  CHECK(cudaGetLastError());
  CHECK(cudaDeviceSynchronize());
  std::printf("done\n");
  return 0;
}
