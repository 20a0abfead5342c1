#include "harness.h"
#ifndef ON_CPU
#include <mma.h>
#endif

static Case product(int n, std::function<void(int, const float*, const float*, float*, int)> launch) {
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)n * n)), z = std::make_shared<std::vector<float>>(random_floats((size_t)n * n, -1, 1, 12));
  auto a = on_device(*x), b = on_device(*z), c = empty<float>(x->size());
  return {[=](int side) { launch(side, a->data, b->data, c->data, n); },
          [=] { c->clear(); },
          [=](int) { auto y = c->host(); return sampled(y.size(), 300, [&](Largest& l, size_t i) { double e = 0; for (int k = 0; k < n; ++k) e += (double)(*x)[i / n * n + k] * (*z)[(size_t)k * n + i % n]; l.add(y[i], e); }); }};
}

// ---- one or sixteen results a thread, both through shared memory
template <int COPY> __global__ void __launch_bounds__(1024) gemm_32(const float* a, const float* b, float* c, int n) {
  __shared__ float as[32][32], bs[32][32];
  const int row = blockIdx.y * 32 + threadIdx.y, column = blockIdx.x * 32 + threadIdx.x;
  float sum = 0.0f;
  for (int base = 0; base < n; base += 32) {
    as[threadIdx.y][threadIdx.x] = a[(size_t)row * n + base + threadIdx.x];
    bs[threadIdx.y][threadIdx.x] = b[(size_t)(base + threadIdx.y) * n + column];
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) sum = fmaf(as[threadIdx.y][k], bs[k][threadIdx.x], sum);
    __syncthreads();
  }
  c[(size_t)row * n + column] = sum;
}
__global__ void __launch_bounds__(256) gemm_64(const float* a, const float* b, float* c, int n) {
  __shared__ float as[64][33], bs[32][64];
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  float sum[4][4] = {};
  for (int base = 0; base < n; base += 32) {
#pragma unroll
    for (int i = threadIdx.x; i < 64 * 32; i += 256) {
      as[i / 32][i % 32] = a[(size_t)(blockIdx.y * 64 + i / 32) * n + base + i % 32];
      bs[i / 64][i % 64] = b[(size_t)(base + i / 64) * n + blockIdx.x * 64 + i % 64];
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      float x[4], y[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) { x[i] = as[ty + 16 * i][k]; y[i] = bs[k][tx + 16 * i]; }
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) c[(size_t)(blockIdx.y * 64 + ty + 16 * i) * n + blockIdx.x * 64 + tx + 16 * j] = sum[i][j];
}
CASE(gemm_results_per_thread) {
  return product(pick(1536, 128), [](int side, const float* a, const float* b, float* c, int n) {
    if (side) LAUNCH(gemm_64, dim3(n / 64, n / 64), 256, 0, a, b, c, n);
    else LAUNCH(gemm_32<0>, dim3(n / 32, n / 32), dim3(32, 32), 0, a, b, c, n); });
}
CASE(gemm_renamed) {
  return product(pick(1024, 64), [](int side, const float* a, const float* b, float* c, int n) {
    if (side) LAUNCH(gemm_32<2>, dim3(n / 32, n / 32), dim3(32, 32), 0, a, b, c, n);
    else LAUNCH(gemm_32<1>, dim3(n / 32, n / 32), dim3(32, 32), 0, a, b, c, n); });
}

// ---- 128x128 tiles, 8x8 results a thread: one buffer, or cp.async into a second one
template <bool DOUBLE> __global__ void __launch_bounds__(256) gemm_128(const float* a, const float* b, float* c, int n) {
  constexpr int STAGES = DOUBLE ? 2 : 1;
  __shared__ __align__(16) float as[STAGES][128][20];
  __shared__ __align__(16) float bs[STAGES][16][128];
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
  const float* left = a + (size_t)blockIdx.y * 128 * n;
  const float* right = b + blockIdx.x * 128;
  float sum[8][8] = {};
  auto fetch = [&](int stage, int base) {
#pragma unroll
    for (int i = threadIdx.x; i < 512; i += 256) {
      const float* p = left + (size_t)(i / 4) * n + base + i % 4 * 4;
      const float* q = right + (size_t)(base + i / 32) * n + i % 32 * 4;
      if (DOUBLE) {
        __pipeline_memcpy_async(&as[stage][i / 4][i % 4 * 4], p, 16);
        __pipeline_memcpy_async(&bs[stage][i / 32][i % 32 * 4], q, 16);
      } else {
        *reinterpret_cast<float4*>(&as[stage][i / 4][i % 4 * 4]) = *reinterpret_cast<const float4*>(p);
        *reinterpret_cast<float4*>(&bs[stage][i / 32][i % 32 * 4]) = *reinterpret_cast<const float4*>(q);
      }
    }
    if (DOUBLE) __pipeline_commit();
  };
  if (DOUBLE) fetch(0, 0);
  for (int base = 0, stage = 0; base < n; base += 16) {
    if (DOUBLE) {
      __pipeline_wait_prior(0);
      __syncthreads();
      if (base + 16 < n) fetch(stage ^ 1, base + 16);
    } else {
      fetch(0, base);
      __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      float x[8], y[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) { x[i] = as[stage][ty + 16 * i][k]; y[i] = bs[stage][k][tx + 16 * i]; }
#pragma unroll
      for (int i = 0; i < 8; ++i)
#pragma unroll
        for (int j = 0; j < 8; ++j) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
    }
    if (DOUBLE) stage ^= 1;
    else __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 8; ++i)
#pragma unroll
    for (int j = 0; j < 8; ++j) c[(size_t)(blockIdx.y * 128 + ty + 16 * i) * n + blockIdx.x * 128 + tx + 16 * j] = sum[i][j];
}
CASE(gemm_double_buffer) {
  return product(pick(1408, 128), [](int side, const float* a, const float* b, float* c, int n) {
    if (side) LAUNCH(gemm_128<true>, dim3(n / 128, n / 128), 256, 0, a, b, c, n);
    else LAUNCH(gemm_128<false>, dim3(n / 128, n / 128), 256, 0, a, b, c, n); });
}

// ---- half precision: products in FMA units or in tensor cores
template <bool TENSOR> __global__ void __launch_bounds__(256) gemm_half(const __half* a, const __half* b, float* c, int n) {
  __shared__ __align__(32) __half as[64][48];
  __shared__ __align__(32) __half bs[32][80];
  const int ty = threadIdx.x / 16, tx = threadIdx.x % 16;
#ifndef ON_CPU
  using namespace nvcuda;
  wmma::fragment<wmma::accumulator, 16, 16, 16, float> acc[2];
#endif
  float sum[4][4] = {};
  const int warp = threadIdx.x / 32;
  if (TENSOR) {
#ifndef ON_CPU
    wmma::fill_fragment(acc[0], 0.0f); wmma::fill_fragment(acc[1], 0.0f);
#endif
  }
  for (int base = 0; base < n; base += 32) {
#pragma unroll
    for (int i = threadIdx.x; i < 64 * 32; i += 256) {
      as[i / 32][i % 32] = a[(size_t)(blockIdx.y * 64 + i / 32) * n + base + i % 32];
      bs[i / 64][i % 64] = b[(size_t)(base + i / 64) * n + blockIdx.x * 64 + i % 64];
    }
    __syncthreads();
    if (TENSOR) {
#ifndef ON_CPU
#pragma unroll
      for (int k = 0; k < 32; k += 16) {
        wmma::fragment<wmma::matrix_a, 16, 16, 16, __half, wmma::row_major> x;
        wmma::load_matrix_sync(x, &as[warp / 2 * 16][k], 48);
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          wmma::fragment<wmma::matrix_b, 16, 16, 16, __half, wmma::row_major> y;
          wmma::load_matrix_sync(y, &bs[k][(warp % 2 * 2 + j) * 16], 80);
          wmma::mma_sync(acc[j], x, y, acc[j]);
        }
      }
#endif
    } else {
#pragma unroll
      for (int k = 0; k < 32; ++k) {
        float x[4], y[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) { x[i] = __half2float(as[ty + 16 * i][k]); y[i] = __half2float(bs[k][tx + 16 * i]); }
#pragma unroll
        for (int i = 0; i < 4; ++i)
#pragma unroll
          for (int j = 0; j < 4; ++j) sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
      }
    }
    __syncthreads();
  }
  if (TENSOR) {
#ifndef ON_CPU
    for (int j = 0; j < 2; ++j)
      wmma::store_matrix_sync(c + (size_t)(blockIdx.y * 64 + warp / 2 * 16) * n + blockIdx.x * 64 + (warp % 2 * 2 + j) * 16, acc[j], n, wmma::mem_row_major);
#endif
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) c[(size_t)(blockIdx.y * 64 + ty + 16 * i) * n + blockIdx.x * 64 + tx + 16 * j] = sum[i][j];
  }
}
CASE(gemm_tensor_cores) {
  const int n = pick(1536, 64);
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)n * n)), z = std::make_shared<std::vector<float>>(random_floats((size_t)n * n, -1, 1, 12));
  auto round = [](std::vector<float>& v) { std::vector<__half> h(v.size()); for (size_t i = 0; i < v.size(); ++i) { h[i] = __float2half(v[i]); v[i] = __half2float(h[i]); } return h; };
  auto a = on_device(round(*x)), b = on_device(round(*z)); auto c = empty<float>(x->size());
  return {[=](int side) {
            const dim3 grid(n / 64, n / 64);
#ifdef ON_CPU
            side = 0;
#endif
            if (side) LAUNCH(gemm_half<true>, grid, 256, 0, a->data, b->data, c->data, n); else LAUNCH(gemm_half<false>, grid, 256, 0, a->data, b->data, c->data, n); },
          [=] { c->clear(); },
          [=](int) { auto y = c->host(); return sampled(y.size(), 300, [&](Largest& l, size_t i) { double e = 0; for (int k = 0; k < n; ++k) e += (double)(*x)[i / n * n + k] * (*z)[(size_t)k * n + i % n]; l.add(y[i], e); }); }};
}
