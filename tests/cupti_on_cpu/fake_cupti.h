// Launches of a program without a GPU, as its callbacks see them.
#pragma once

#include <cuda.h>
#include <cupti.h>

#include <cstdint>

extern "C" {
// With `refused` the driver returns an error and nothing runs.
void fake_call_that(bool refused, int context, CUpti_CallbackId id, const char* symbol,
                    const void* parameters);
void fake_runs(void (*running)(const char* symbol));  // called while a launch is being made
void fake_capture(bool on);  // launches become part of a graph
void fake_launch(int context, const char* kernel, unsigned blocks, unsigned threads);
extern int fake_green_contexts;
extern int fake_turns;  // a variable of a module

void fake_call(int context, CUpti_CallbackId id, const char* symbol, const void* parameters);
// A launch that is timed, 500 ns; of a graph's replay where `node` is not 0.
void fake_kernel(int context, const char* kernel, uint64_t node);
void fake_node(uint64_t node, uint64_t original);  // captured here, or cloned from another one
void fake_copy(uint64_t bytes);  // from pageable memory of the host, 250 ns
}
