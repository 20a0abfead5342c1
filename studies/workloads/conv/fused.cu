// One kernel: the tiled product gathers its right-hand side from the image, so the unrolled input
// never exists in memory.
//   TILE      width of the tiles; a block has TILE x TILE threads
//   RESTRICT  1: pointers are __restrict__
//   CONSTANT  1: filters lie in constant memory
//   INNER     0: the loop over a tile is left to the compiler; 1: kept a loop; 2: unrolled by hand
#include "conv.cuh"

#ifndef TILE
#define TILE 16
#endif
#ifndef RESTRICT
#define RESTRICT 0
#endif
#ifndef CONSTANT
#define CONSTANT 0
#endif
#ifndef INNER
#define INNER 0
#endif

#if RESTRICT
#define POINTER __restrict__
#else
#define POINTER
#endif

#if CONSTANT
__constant__ float constant_filters[16384];
#define FILTER(i) constant_filters[i]
#else
#define FILTER(i) weights[i]
#endif

#define TERM(k) sum += filters[threadIdx.y][k] * patches[k][threadIdx.x];
#define EIGHT(k) \
    TERM((k)) TERM((k) + 1) TERM((k) + 2) TERM((k) + 3) \
    TERM((k) + 4) TERM((k) + 5) TERM((k) + 6) TERM((k) + 7)

// Grid: (pixels / TILE, maps / TILE, images).
extern "C" __global__ void __launch_bounds__(TILE* TILE)
    fused(const float* POINTER weights, const float* POINTER input, float* POINTER output,
          Shape shape)
{
    __shared__ float filters[TILE][TILE];
    __shared__ float patches[TILE][TILE];
    const int pixels = shape.out_height * shape.out_width;
    const int depth = shape.channels * shape.size * shape.size;
    const int pixel = blockIdx.x * TILE + threadIdx.x;
    const int map = blockIdx.y * TILE + threadIdx.y;
    const int top = pixel / shape.out_width - shape.pad;
    const int left = pixel % shape.out_width - shape.pad;
    const float* image =
        input + static_cast<size_t>(blockIdx.z) * shape.channels * shape.height * shape.width;
    float sum = 0.0f;
    for (int start = 0; start < depth; start += TILE) {
        const int across = start + threadIdx.x, down = start + threadIdx.y;
        filters[threadIdx.y][threadIdx.x] =
            map < shape.maps && across < depth ? FILTER(map * depth + across) : 0.0f;
        patches[threadIdx.y][threadIdx.x] =
            pixel < pixels && down < depth ? unrolled(image, shape, down, top, left) : 0.0f;
        __syncthreads();
#if INNER == 2
        EIGHT(0)
#if TILE > 8
        EIGHT(8)
#endif
#if TILE > 16
        EIGHT(16) EIGHT(24)
#endif
#else
#if INNER == 1
#pragma unroll 1
#endif
        for (int k = 0; k < TILE; ++k) { TERM(k) }
#endif
        __syncthreads();
    }
    if (map < shape.maps && pixel < pixels) {
        output[(static_cast<size_t>(blockIdx.z) * shape.maps + map) * pixels + pixel] = sum;
    }
}
