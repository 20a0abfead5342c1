// What every version of the convolution shares: the problem, and one element of the unrolled input.
#pragma once

struct Shape {
    int images, maps, channels, height, width;  // input is [image][channel][y][x]
    int size, pad;                              // square filters, stride 1
    int out_height, out_width;
};

// The unrolled input has a row for each (channel, filter row, filter column) and a column for each
// output pixel. Where the filter hangs over the edge of the image there is a zero.
__device__ __forceinline__ float unrolled(const float* image, const Shape& shape, int row,
                                          int top, int left)
{
    const int area = shape.size * shape.size;
    const int channel = row / area;
    const int inside = row - channel * area;
    const int y = top + inside / shape.size;
    const int x = left + inside % shape.size;
    if (y < 0 || y >= shape.height || x < 0 || x >= shape.width) return 0.0f;
    return image[(channel * shape.height + y) * shape.width + x];
}
