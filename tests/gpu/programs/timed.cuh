// Prints how long a launch of each planted kernel takes, in microseconds.
#pragma once

#include <cstdio>
#include <cuda_runtime.h>

template <typename Work>
void timed(const char* name, int turns, Work work) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  work();
  cudaEventRecord(begin);
  for (int turn = 0; turn < turns; ++turn) work();
  cudaEventRecord(end);
  cudaEventSynchronize(end);
  float ms = 0;
  cudaEventElapsedTime(&ms, begin, end);
  std::printf("%s %.1f\n", name, ms * 1e3f / turns);
}
