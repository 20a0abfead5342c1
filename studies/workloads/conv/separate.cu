// Three kernels: unroll the input to memory, multiply with the filters, bring images to the front.
#include "conv.cuh"

#ifndef TILE
#define TILE 16
#endif

// A thread writes the whole column of one output pixel. Grid: (pixels / block, images).
extern "C" __global__ void unroll(const float* input, float* columns, Shape shape)
{
    const int pixels = shape.out_height * shape.out_width;
    const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= pixels) return;
    const float* image =
        input + static_cast<size_t>(blockIdx.y) * shape.channels * shape.height * shape.width;
    const int top = pixel / shape.out_width - shape.pad;
    const int left = pixel % shape.out_width - shape.pad;
    const size_t pitch = static_cast<size_t>(shape.images) * pixels;
    float* column = columns + static_cast<size_t>(blockIdx.y) * pixels + pixel;
    const int depth = shape.channels * shape.size * shape.size;
    for (int row = 0; row < depth; ++row) {
        column[row * pitch] = unrolled(image, shape, row, top, left);
    }
}

// product[map][column] = sum over depth; block TILE x TILE, grid (columns / TILE, maps / TILE).
extern "C" __global__ void __launch_bounds__(TILE* TILE)
    multiply(const float* weights, const float* columns, float* product, Shape shape)
{
    __shared__ float filters[TILE][TILE];
    __shared__ float patches[TILE][TILE];
    const size_t width =
        static_cast<size_t>(shape.images) * shape.out_height * shape.out_width;
    const int depth = shape.channels * shape.size * shape.size;
    const size_t column = static_cast<size_t>(blockIdx.x) * TILE + threadIdx.x;
    const int map = blockIdx.y * TILE + threadIdx.y;
    float sum = 0.0f;
    for (int start = 0; start < depth; start += TILE) {
        const int across = start + threadIdx.x, down = start + threadIdx.y;
        filters[threadIdx.y][threadIdx.x] =
            map < shape.maps && across < depth ? weights[map * depth + across] : 0.0f;
        patches[threadIdx.y][threadIdx.x] =
            column < width && down < depth ? columns[down * width + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < TILE; ++k) {
            sum += filters[threadIdx.y][k] * patches[k][threadIdx.x];
        }
        __syncthreads();
    }
    if (map < shape.maps && column < width) product[map * width + column] = sum;
}

// output[image][map][pixel] = product[map][image][pixel]. Grid: (pixels / block, images).
extern "C" __global__ void permute(const float* product, float* output, Shape shape)
{
    const int pixels = shape.out_height * shape.out_width;
    const int pixel = blockIdx.x * blockDim.x + threadIdx.x;
    if (pixel >= pixels) return;
    const size_t image = blockIdx.y;
    for (int map = 0; map < shape.maps; ++map) {
        output[(image * shape.maps + map) * pixels + pixel] =
            product[(static_cast<size_t>(map) * shape.images + image) * pixels + pixel];
    }
}
