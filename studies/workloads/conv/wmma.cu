// The fused product on the tensor cores, through WMMA. A block makes 16 maps x PIXELS pixels, each
// of its warps 16 x 16 of them; sums are in fp32.
//   HALF    0: TF32 fragments 16 x 16 x 8, two a step; 1: FP16 fragments 16 x 16 x 16
//   PIXELS  64: four warps share a tile of filters; 16: a warp has its tile to itself
//   UNROLL  how often the loop over steps is unrolled; 1: kept a loop; 0: left to the compiler
#include <cuda_fp16.h>
#include <mma.h>

#include "conv.cuh"

#ifndef HALF
#define HALF 0
#endif
#ifndef PIXELS
#define PIXELS 64
#endif
#ifndef UNROLL
#define UNROLL 0
#endif

using namespace nvcuda;

constexpr int MAPS = 16, STEP = 16, THREADS = 2 * PIXELS;
// a pragma knows constants, but no macros
constexpr int STEPS_AT_ONCE = UNROLL;

#if HALF
using Value = half;
using Format = half;
constexpr int SLICE = 16;
// rows are 8 halves longer than needed: neighbouring rows begin in other banks
constexpr int FILTER_PITCH = STEP + 8, PATCH_PITCH = PIXELS + 8;
__device__ __forceinline__ Value rounded(float value) { return __float2half(value); }
#else
using Value = float;
using Format = wmma::precision::tf32;
constexpr int SLICE = 8;
constexpr int FILTER_PITCH = STEP + 4, PATCH_PITCH = PIXELS + 4;
__device__ __forceinline__ Value rounded(float value) { return wmma::__float_to_tf32(value); }
#endif
constexpr int SUM_PITCH = PIXELS + 4;

// Grid: (pixels / PIXELS, maps / 16, images).
extern "C" __global__ void __launch_bounds__(THREADS)
    fused_wmma(const float* __restrict__ weights, const float* __restrict__ input,
               float* __restrict__ output, Shape shape)
{
    // load_matrix_sync wants addresses that are multiples of 32 bytes
    __shared__ __align__(32) Value filters[MAPS * FILTER_PITCH];
    __shared__ __align__(32) Value patches[STEP * PATCH_PITCH];
    __shared__ __align__(32) float sums[MAPS * SUM_PITCH];

    const int pixels = shape.out_height * shape.out_width;
    const int depth = shape.channels * shape.size * shape.size;
    const int first_pixel = blockIdx.x * PIXELS, first_map = blockIdx.y * MAPS;
    const int warp = threadIdx.x / 32;
    // a thread fills one column of the patches, every second row
    const int column = threadIdx.x % PIXELS, first_row = threadIdx.x / PIXELS;
    const int pixel = first_pixel + column;
    const int top = pixel / shape.out_width - shape.pad;
    const int left = pixel % shape.out_width - shape.pad;
    const float* image =
        input + static_cast<size_t>(blockIdx.z) * shape.channels * shape.height * shape.width;

    wmma::fragment<wmma::accumulator, 16, 16, SLICE, float> sum;
    wmma::fill_fragment(sum, 0.0f);
#if UNROLL
#pragma unroll STEPS_AT_ONCE
#endif
    for (int start = 0; start < depth; start += STEP) {
        for (int i = threadIdx.x; i < MAPS * STEP; i += THREADS) {
            const int map = first_map + i / STEP, k = start + i % STEP;
            const float value =
                map < shape.maps && k < depth ? weights[map * depth + k] : 0.0f;
            filters[i / STEP * FILTER_PITCH + i % STEP] = rounded(value);
        }
        for (int row = first_row; row < STEP; row += THREADS / PIXELS) {
            const int k = start + row;
            const float value =
                pixel < pixels && k < depth ? unrolled(image, shape, k, top, left) : 0.0f;
            patches[row * PATCH_PITCH + column] = rounded(value);
        }
        __syncthreads();
        for (int slice = 0; slice < STEP; slice += SLICE) {
            wmma::fragment<wmma::matrix_a, 16, 16, SLICE, Format, wmma::row_major> a;
            wmma::fragment<wmma::matrix_b, 16, 16, SLICE, Format, wmma::row_major> b;
            wmma::load_matrix_sync(a, filters + slice, FILTER_PITCH);
            wmma::load_matrix_sync(b, patches + slice * PATCH_PITCH + warp * 16, PATCH_PITCH);
            wmma::mma_sync(sum, a, b, sum);
        }
        __syncthreads();
    }
    wmma::store_matrix_sync(sums + warp * 16, sum, SUM_PITCH, wmma::mem_row_major);
    __syncthreads();
    for (int row = first_row; row < MAPS; row += THREADS / PIXELS) {
        const int map = first_map + row;
        if (map < shape.maps && pixel < pixels) {
            output[(static_cast<size_t>(blockIdx.z) * shape.maps + map) * pixels + pixel] =
                sums[row * SUM_PITCH + column];
        }
    }
}
