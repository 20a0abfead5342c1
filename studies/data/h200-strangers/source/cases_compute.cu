#include "harness.h"

// ---- n-body: a literal without f

__device__ float in_single(float squared) { return 1.0f / sqrtf(squared); }
__device__ float in_double(float squared) { return 1.0 / sqrtf(squared); }
template <bool SINGLE> __global__ void gravity(const float4* bodies, float4* force, int sources) {
  __shared__ float4 tile[128];
  const float4 me = bodies[blockIdx.x * 128 + threadIdx.x];
  float fx = 0, fy = 0, fz = 0;
  for (int base = 0; base < sources; base += 128) {
    tile[threadIdx.x] = bodies[base + threadIdx.x];
    __syncthreads();
#pragma unroll 8
    for (int j = 0; j < 128; ++j) {
      const float dx = tile[j].x - me.x, dy = tile[j].y - me.y, dz = tile[j].z - me.z;
      const float squared = dx * dx + dy * dy + dz * dz + 1e-3f;
      const float r = SINGLE ? in_single(squared) : in_double(squared);
      const float s = tile[j].w * r * r * r;
      fx += s * dx; fy += s * dy; fz += s * dz;
    }
    __syncthreads();
  }
  force[blockIdx.x * 128 + threadIdx.x] = make_float4(fx, fy, fz, 0);
}
CASE(gravity_literal) {
  const int targets = pick(67584, 256), sources = pick(1024, 256);
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)targets * 4));
  auto in = on_device(*x); auto out = empty<float>(x->size());
  return {[=](int side) { auto b = (const float4*)in->data; auto f = (float4*)out->data; if (side) LAUNCH(gravity<true>, targets / 128, 128, 0, b, f, sources); else LAUNCH(gravity<false>, targets / 128, 128, 0, b, f, sources); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(targets, 60, [&](Largest& l, size_t i) { double e = 0; const float* v = x->data();
            for (int j = 0; j < sources; ++j) { double d[3], s = 1e-3; for (int k = 0; k < 3; ++k) { d[k] = v[4 * j + k] - v[4 * i + k]; s += d[k] * d[k]; } e += v[4 * j + 3] / (s * std::sqrt(s)) * d[1]; }
            l.add(y[4 * i + 1], e); }); }};
}

// ---- shading: eight materials, rays in the order of the image or sorted by material
__global__ void shade(const int* material, const float* cosine, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float c = cosine[i], v = c;
  switch (material[i]) {
    case 0: for (int k = 0; k < 40; ++k) v = fmaf(v, 0.9f, 0.05f * c); break;
    case 1: for (int k = 0; k < 40; ++k) v = fmaf(v * v, -0.3f, c); break;
    case 2: for (int k = 0; k < 40; ++k) v = sqrtf(v + 1.0f) - 0.5f * c; break;
    case 3: for (int k = 0; k < 40; ++k) v = fminf(v + 0.01f, c * 0.7f) + 0.003f; break;
    case 4: for (int k = 0; k < 40; ++k) v = __expf(-v) * c; break;
    case 5: for (int k = 0; k < 40; ++k) v = fmaf(v, v * 0.25f, 0.2f) * c; break;
    case 6: for (int k = 0; k < 40; ++k) v = fmaxf(v - 0.02f, 0.1f) * 0.99f + 0.001f * c; break;
    default: for (int k = 0; k < 40; ++k) v = rsqrtf(v + 2.0f) + 0.1f * c; break;
  }
  out[i] = v;
}
static double shaded(int m, double c) {
  double v = c;
  for (int k = 0; k < 40; ++k) switch (m) {
    case 0: v = v * 0.9 + 0.05 * c; break; case 1: v = v * v * -0.3 + c; break; case 2: v = std::sqrt(v + 1) - 0.5 * c; break;
    case 3: v = std::fmin(v + 0.01, c * 0.7) + 0.003; break; case 4: v = std::exp(-v) * c; break; case 5: v = (v * v * 0.25 + 0.2) * c; break;
    case 6: v = std::fmax(v - 0.02, 0.1) * 0.99 + 0.001 * c; break; default: v = 1 / std::sqrt(v + 2) + 0.1 * c; }
  return v;
}
CASE(shade_order) {
  const int n = pick(1 << 23, 1 << 10);
  auto mixed = std::make_shared<std::vector<int>>(n), sorted = std::make_shared<std::vector<int>>(n);
  uint64_t s = 5; int count[8] = {0};
  for (int& m : *mixed) { m = next_random(s) % 8; ++count[m]; }
  int at = 0; for (int m = 0; m < 8; ++m) for (int k = 0; k < count[m]; ++k) (*sorted)[at++] = m;
  auto c = std::make_shared<std::vector<float>>(random_floats(n, 0.1f, 1.0f));
  auto a = on_device(*mixed), b = on_device(*sorted); auto in = on_device(*c), out = empty<float>(n);
  return {[=](int side) { LAUNCH(shade, n / 256, 256, 0, side ? b->data : a->data, in->data, out->data, n); },
          [=] { out->clear(); },
          [=](int side) { auto y = out->host(); return sampled(n, 400, [&](Largest& l, size_t i) { l.add(y[i], shaded((side ? *sorted : *mixed)[i], (*c)[i])); }); }};
}

// ---- FFT of 1024 points in shared memory: twiddles computed or looked up
template <bool TABLE> __global__ void __launch_bounds__(256) fft1024(const float2* in, float2* out, const float2* __restrict__ twiddle) {
  __shared__ float2 x[1024];
  const float2* row = in + (size_t)blockIdx.x * 1024;
  for (int i = threadIdx.x; i < 1024; i += 256) {
    int r = 0;
#pragma unroll
    for (int b = 0; b < 10; ++b) r |= (i >> b & 1) << (9 - b);
    x[r] = row[i];
  }
  __syncthreads();
  for (int half = 1; half < 1024; half *= 2) {
    for (int b = threadIdx.x; b < 512; b += 256) {
      const int j = b & (half - 1), low = 2 * (b - j) + j;
      float2 w;
      if (TABLE) w = __ldg(&twiddle[j * (512 / half)]);
      else sincosf(-3.14159265f * j / half, &w.y, &w.x);
      const float2 a = x[low], c = x[low + half];
      const float re = c.x * w.x - c.y * w.y, im = c.x * w.y + c.y * w.x;
      x[low] = make_float2(a.x + re, a.y + im);
      x[low + half] = make_float2(a.x - re, a.y - im);
    }
    __syncthreads();
  }
  for (int i = threadIdx.x; i < 1024; i += 256) out[(size_t)blockIdx.x * 1024 + i] = x[i];
}
CASE(fft_twiddles) {
  const int batch = pick(8192, 4);
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)batch * 2048));
  std::vector<float> w(1024); for (int j = 0; j < 512; ++j) { w[2 * j] = std::cos(-M_PI * j / 512); w[2 * j + 1] = std::sin(-M_PI * j / 512); }
  auto in = on_device(*x), out = empty<float>(x->size()), table = on_device(w);
  return {[=](int side) { auto i = (const float2*)in->data; auto o = (float2*)out->data; auto t = (const float2*)table->data; if (side) LAUNCH(fft1024<true>, batch, 256, 0, i, o, t); else LAUNCH(fft1024<false>, batch, 256, 0, i, o, t); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled((size_t)batch * 1024, 200, [&](Largest& l, size_t i) { const float* v = x->data() + i / 1024 * 2048; const int k = i % 1024; double e = 0;
            for (int t = 0; t < 1024; ++t) { const double a = -2 * M_PI * (k * t % 1024) / 1024; e += v[2 * t] * std::cos(a) - v[2 * t + 1] * std::sin(a); } l.add(y[2 * i], e); }); }};
}

// ---- im2col: division in index arithmetic
struct Shape { int channels, height, width, size; };
__global__ void im2col_flat(const float* in, float* out, Shape s, int total) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= total) return;
  const int x = i % s.width, y = i / s.width % s.height, tap = i / (s.width * s.height);
  const int kx = tap % s.size, ky = tap / s.size % s.size, c = tap / (s.size * s.size);
  const int ix = x + kx - s.size / 2, iy = y + ky - s.size / 2;
  out[i] = ix >= 0 && ix < s.width && iy >= 0 && iy < s.height ? in[((size_t)c * s.height + iy) * s.width + ix] : 0.0f;
}
__global__ void im2col_grid(const float* in, float* out, Shape s, int total) {
  const int x = threadIdx.x, y = blockIdx.x * 2 + threadIdx.y;
  const int kx = blockIdx.y % 3, ky = blockIdx.y / 3, c = blockIdx.z;
  const int ix = x + kx - 1, iy = y + ky - 1;
  out[(((size_t)c * 9 + blockIdx.y) * s.height + y) * s.width + x] = ix >= 0 && ix < s.width && iy >= 0 && iy < s.height ? in[((size_t)c * s.height + iy) * s.width + ix] : 0.0f;
}
CASE(im2col_indices) {
  const Shape s = {pick(128, 2), pick(128, 8), 128, 3}; const int total = s.channels * 9 * s.height * s.width;
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)s.channels * s.height * s.width));
  auto in = on_device(*x), out = empty<float>(total);
  return {[=](int side) { if (side) LAUNCH(im2col_grid, dim3(s.height / 2, 9, s.channels), dim3(128, 2), 0, in->data, out->data, s, total); else LAUNCH(im2col_flat, total / 256, 256, 0, in->data, out->data, s, total); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(total, 400, [&](Largest& l, size_t i) { const int px = i % s.width, py = i / s.width % s.height, tap = i / (s.width * s.height);
            const int ix = px + tap % 3 - 1, iy = py + tap / 3 % 3 - 1, c = tap / 9;
            l.add(y[i], ix >= 0 && ix < s.width && iy >= 0 && iy < s.height ? (*x)[((size_t)c * s.height + iy) * s.width + ix] : 0); }); }};
}

// ---- depthwise convolution, channels last: weights in constant memory, another one for every lane
constexpr int DEPTHWISE = 256;
__constant__ float depthwise_weights[9 * DEPTHWISE];
__device__ float depthwise_at(const float* in, int p, int c, int n, int k) {
  const int x = p % n + k % 3 - 1, y = p / n % n + k / 3 - 1;
  return x >= 0 && x < n && y >= 0 && y < n ? in[((size_t)(p / (n * n) * n + y) * n + x) * DEPTHWISE + c] : 0.0f;
}
__global__ void depthwise_constant(const float* in, float* out, int n) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 9; ++k) sum = fmaf(depthwise_at(in, blockIdx.x, threadIdx.x, n, k), depthwise_weights[k * DEPTHWISE + threadIdx.x], sum);
  out[(size_t)blockIdx.x * DEPTHWISE + threadIdx.x] = sum;
}
__global__ void depthwise_global(const float* in, float* out, const float* __restrict__ weights, int n) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 9; ++k) sum = fmaf(depthwise_at(in, blockIdx.x, threadIdx.x, n, k), __ldg(&weights[k * DEPTHWISE + threadIdx.x]), sum);
  out[(size_t)blockIdx.x * DEPTHWISE + threadIdx.x] = sum;
}
CASE(depthwise_weights) {
  const int n = pick(128, 8), images = pick(4, 1);
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)images * n * n * DEPTHWISE));
  auto w = std::make_shared<std::vector<float>>(random_floats(9 * DEPTHWISE, -1, 1, 8));
  auto in = on_device(*x), out = empty<float>(x->size()), weights = on_device(*w);
#ifdef ON_CPU
  memcpy(depthwise_weights, w->data(), sizeof depthwise_weights);
#else
  OK(cudaMemcpyToSymbol(depthwise_weights, w->data(), sizeof depthwise_weights));
#endif
  return {[=](int side) { if (side) LAUNCH(depthwise_global, images * n * n, DEPTHWISE, 0, in->data, out->data, weights->data, n); else LAUNCH(depthwise_constant, images * n * n, DEPTHWISE, 0, in->data, out->data, n); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(y.size(), 400, [&](Largest& l, size_t i) { const int p = i / DEPTHWISE, c = i % DEPTHWISE; double e = 0;
            for (int k = 0; k < 9; ++k) { const int ix = p % n + k % 3 - 1, iy = p / n % n + k / 3 - 1;
              if (ix >= 0 && ix < n && iy >= 0 && iy < n) e += (double)(*x)[((size_t)(p / (n * n) * n + iy) * n + ix) * DEPTHWISE + c] * (*w)[k * DEPTHWISE + c]; }
            l.add(y[i], e); }); }};
}

// ---- int8 dot products: bytes unpacked or dp4a
template <bool DP4A> __global__ void scores_int8(const int4* vectors, const int* queries, int* out, int n) {
  __shared__ int query[64 * 32];
  for (int i = threadIdx.x; i < 64 * 32; i += blockDim.x) query[i] = queries[i];
  __syncthreads();
  const int v = blockIdx.x * blockDim.x + threadIdx.x;
  int mine[32];
#pragma unroll
  for (int k = 0; k < 8; ++k) { const int4 four = vectors[(size_t)k * n + v]; mine[4 * k] = four.x; mine[4 * k + 1] = four.y; mine[4 * k + 2] = four.z; mine[4 * k + 3] = four.w; }
  for (int q = 0; q < 64; ++q) {
    int sum = 0;
#pragma unroll
    for (int k = 0; k < 32; ++k) {
      const int a = mine[k], b = query[q * 32 + k];
      if (DP4A) sum = __dp4a(a, b, sum);
      else {
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) sum += (int)(signed char)(a >> 8 * byte) * (int)(signed char)(b >> 8 * byte);
      }
    }
    out[(size_t)q * n + v] = sum;
  }
}
CASE(int8_scores) {
  const int n = pick(1 << 18, 256);
  auto v = std::make_shared<std::vector<int>>((size_t)n * 32), q = std::make_shared<std::vector<int>>(64 * 32);
  uint64_t s = 21; auto word = [&] { return (int)(next_random(s) << 16 ^ next_random(s)); };
  for (size_t i = 0; i < v->size(); ++i) (*v)[i] = i < 65537 ? word() : (*v)[i - 65537];
  for (int& e : *q) e = word();
  auto dv = on_device(*v), dq = on_device(*q); auto out = empty<int>((size_t)n * 64);
  return {[=](int side) { auto p = (const int4*)dv->data; if (side) LAUNCH(scores_int8<true>, n / 128, 128, 0, p, dq->data, out->data, n); else LAUNCH(scores_int8<false>, n / 128, 128, 0, p, dq->data, out->data, n); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(y.size(), 300, [&](Largest& l, size_t i) { const size_t row = i % n; const int query = i / n; int e = 0;
            for (int k = 0; k < 32; ++k) { const int a = (*v)[((size_t)(k / 4) * n + row) * 4 + k % 4], b = (*q)[query * 32 + k]; for (int t = 0; t < 4; ++t) e += (int)(signed char)(a >> 8 * t) * (int)(signed char)(b >> 8 * t); }
            l.add(y[i], e); }); }};
}

// ---- Cholesky factor of an 8x8 matrix in every thread: registers allowed
template <int BLOCKS> __global__ void __launch_bounds__(256, BLOCKS) cholesky8(const float* in, float* out, int n) {
  const int i = blockIdx.x * 256 + threadIdx.x;
  float a[36];
#pragma unroll
  for (int k = 0; k < 36; ++k) a[k] = in[(size_t)k * n + i];
#pragma unroll
  for (int c = 0; c < 8; ++c) {
    const int d = c * (c + 1) / 2 + c;
    const float root = rsqrtf(a[d]);
    a[d] = a[d] * root;
#pragma unroll
    for (int r = c + 1; r < 8; ++r) a[r * (r + 1) / 2 + c] *= root;
#pragma unroll
    for (int r = c + 1; r < 8; ++r)
#pragma unroll
      for (int s = c + 1; s <= r; ++s) a[r * (r + 1) / 2 + s] -= a[r * (r + 1) / 2 + c] * a[s * (s + 1) / 2 + c];
  }
#pragma unroll
  for (int k = 0; k < 36; ++k) out[(size_t)k * n + i] = a[k];
}
CASE(cholesky_registers) {
  const int n = pick(1 << 20, 512);
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)36 * n, -0.3f, 0.3f));
  for (int d = 0, k = 0; d < 8; ++d, k += d + 1) for (int i = 0; i < n; ++i) (*x)[(size_t)k * n + i] = 3.0f + (*x)[(size_t)k * n + i];
  auto in = on_device(*x), out = empty<float>(x->size());
  return {[=](int side) { if (side) LAUNCH(cholesky8<2>, n / 256, 256, 0, in->data, out->data, n); else LAUNCH(cholesky8<8>, n / 256, 256, 0, in->data, out->data, n); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(n, 200, [&](Largest& l, size_t i) { double a[36];
            for (int k = 0; k < 36; ++k) a[k] = (*x)[(size_t)k * n + i];
            for (int c = 0; c < 8; ++c) for (int r = c; r < 8; ++r) { double t = a[r * (r + 1) / 2 + c]; for (int k = 0; k < c; ++k) t -= a[r * (r + 1) / 2 + k] * a[c * (c + 1) / 2 + k]; a[r * (r + 1) / 2 + c] = r == c ? std::sqrt(t) : t / a[c * (c + 1) / 2 + c]; }
            for (int k = 0; k < 36; ++k) l.add(y[(size_t)k * n + i], a[k]); }); }};
}

// ---- Monte Carlo paths: blocks that just do not fit into one wave
__global__ void __launch_bounds__(1024, 2) paths(float* out, int per_thread) {
  const int i = blockIdx.x * 1024 + threadIdx.x;
  unsigned state = i * 747796405u + 2891336453u;
  float payoff = 0.0f;
  for (int p = 0; p < per_thread; ++p) {
    float price = 1.0f;
    for (int k = 0; k < 32; ++k) {
      state = state * 1664525u + 1013904223u;
      price *= 1.0f + ((int)state >> 8) * 1e-9f;
    }
    payoff += fmaxf(price - 1.0f, 0.0f);
  }
  out[i] = payoff;
}
CASE(paths_tail) {
  const int wave = multiprocessors() * 2, extra = pick(6, 2), rows = pick(45, 3);
  auto out = empty<float>((size_t)(wave + extra) * 1024);
  return {[=](int side) { if (side) LAUNCH(paths, wave, 1024, 0, out->data, rows); else LAUNCH(paths, wave + extra, 1024, 0, out->data, rows - 1); },
          [=] { out->clear(); },
          [=](int side) { auto y = out->host(); return sampled((size_t)wave * 1024, 200, [&](Largest& l, size_t i) { unsigned state = (unsigned)i * 747796405u + 2891336453u; float e = 0;
            for (int p = 0; p < (side ? rows : rows - 1); ++p) { float price = 1; for (int k = 0; k < 32; ++k) { state = state * 1664525u + 1013904223u; price *= 1.0f + ((int)state >> 8) * 1e-9f; } e += std::fmax(price - 1.0f, 0.0f); } l.add(y[i], e); }); }};
}

// ---- the eight largest of 64: a local array with a dynamic index
__global__ void top8_shift(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float best[8];
  for (int k = 0; k < 8; ++k) best[k] = -1e30f;
  for (int k = 0; k < 64; ++k) {
    const float v = in[(size_t)k * n + i];
    int j = 8;
    while (j > 0 && best[j - 1] < v) { if (j < 8) best[j] = best[j - 1]; --j; }
    if (j < 8) best[j] = v;
  }
  for (int k = 0; k < 8; ++k) out[(size_t)k * n + i] = best[k];
}
__global__ void top8_exchange(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float best[8];
#pragma unroll
  for (int k = 0; k < 8; ++k) best[k] = -1e30f;
  for (int k = 0; k < 64; ++k) {
    float v = in[(size_t)k * n + i];
#pragma unroll
    for (int j = 0; j < 8; ++j) { const float high = fmaxf(best[j], v); v = fminf(best[j], v); best[j] = high; }
  }
#pragma unroll
  for (int k = 0; k < 8; ++k) out[(size_t)k * n + i] = best[k];
}
CASE(top8) {
  const int n = pick(1 << 20, 512);
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)64 * n));
  auto in = on_device(*x), out = empty<float>((size_t)8 * n);
  return {[=](int side) { if (side) LAUNCH(top8_exchange, n / 256, 256, 0, in->data, out->data, n); else LAUNCH(top8_shift, n / 256, 256, 0, in->data, out->data, n); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(n, 200, [&](Largest& l, size_t i) { std::vector<float> v(64); for (int k = 0; k < 64; ++k) v[k] = (*x)[(size_t)k * n + i];
            for (int k = 0; k < 8; ++k) { size_t m = k; for (size_t t = k; t < 64; ++t) if (v[t] > v[m]) m = t; std::swap(v[k], v[m]); l.add(y[(size_t)k * n + i], v[k]); } }); }};
}

// ---- all pairs above the diagonal: rows in one piece a block, or dealt out
__global__ void pair_energy(const float* x, float* out, int n, int dealt) {
  const int rows = (n + gridDim.x - 1) / gridDim.x;
  for (int k = 0; k < rows; ++k) {
    const int i = dealt ? k * gridDim.x + blockIdx.x : blockIdx.x * rows + k;
    if (i >= n) continue;
    const float me = x[i];
    float sum = 0.0f;
    for (int j = i + 1 + threadIdx.x; j < n; j += blockDim.x) { const float d = x[j] - me; sum += rsqrtf(d * d + 0.01f); }
    for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
    if (threadIdx.x % 32 == 0) atomicAdd(&out[i], sum);
  }
}
CASE(pair_rows) {
  const int n = pick(32768, 512), grid = multiprocessors() * 4;
  auto x = std::make_shared<std::vector<float>>(random_floats(n));
  auto in = on_device(*x), out = empty<float>(n);
  return {[=](int side) { LAUNCH(pair_energy, grid, 256, 0, in->data, out->data, n, side); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(n, 100, [&](Largest& l, size_t i) { double e = 0; for (int j = i + 1; j < n; ++j) { const double d = (*x)[j] - (*x)[i]; e += 1 / std::sqrt(d * d + 0.01); } l.add(y[i], e); }); }};
}

// ---- sigmoid iterations: exact division or the fast one
template <bool FAST> __global__ void squash(const float* in, float* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float v = in[i];
#pragma unroll 4
  for (int k = 0; k < 32; ++k) v = FAST ? __fdividef(v + 1.0f, 2.0f + v * v) : (v + 1.0f) / (2.0f + v * v);
  out[i] = v;
}
CASE(squash_division) {
  const int n = pick(1 << 24, 1 << 12);
  auto x = std::make_shared<std::vector<float>>(random_floats(n));
  auto in = on_device(*x), out = empty<float>(n);
  return {[=](int side) { if (side) LAUNCH(squash<true>, n / 256, 256, 0, in->data, out->data, n); else LAUNCH(squash<false>, n / 256, 256, 0, in->data, out->data, n); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(n, 300, [&](Largest& l, size_t i) { double v = (*x)[i]; for (int k = 0; k < 32; ++k) v = (v + 1) / (2 + v * v); l.add(y[i], v); }); }};
}

// ---- four recurrences in every thread: one after another, or step by step together
template <bool TOGETHER> __global__ void recurrences(const float* in, float* out, int n, int steps) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  float y[4];
#pragma unroll
  for (int c = 0; c < 4; ++c) y[c] = in[c * n + i];
  if (TOGETHER) {
#pragma unroll 4
    for (int s = 0; s < steps; ++s) {
#pragma unroll
      for (int c = 0; c < 4; ++c) y[c] = fmaf(y[c] * y[c], -0.25f, 0.7f);
    }
  } else {
#pragma unroll
    for (int c = 0; c < 4; ++c) {
      float v = y[c];
#pragma unroll 16
      for (int s = 0; s < steps; ++s) v = fmaf(v * v, -0.25f, 0.7f);
      y[c] = v;
    }
  }
#pragma unroll
  for (int c = 0; c < 4; ++c) out[c * n + i] = y[c];
}
CASE(recurrence_order) {
  const int n = multiprocessors() * 128, steps = pick(8192, 64);
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)4 * n));
  auto in = on_device(*x), out = empty<float>((size_t)4 * n);
  return {[=](int side) { if (side) LAUNCH(recurrences<true>, n / 128, 128, 0, in->data, out->data, n, steps); else LAUNCH(recurrences<false>, n / 128, 128, 0, in->data, out->data, n, steps); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled((size_t)4 * n, 100, [&](Largest& l, size_t i) { double v = (*x)[i]; for (int s = 0; s < steps; ++s) v = v * v * -0.25 + 0.7; l.add(y[i], v); }); }};
}
