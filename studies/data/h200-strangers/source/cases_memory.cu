#include "harness.h"

// ---- softmax over long rows (logits of a vocabulary)
__device__ float block_reduce(float value, bool take_max, float* scratch) {
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = take_max ? fmaxf(value, other) : value + other;
  }
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? scratch[threadIdx.x % 32] : (take_max ? -1e30f : 0.0f);
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(0xffffffffu, value, offset);
    value = take_max ? fmaxf(value, other) : value + other;
  }
  __syncthreads();
  return value;
}
constexpr int SOFTMAX_COLUMNS = 32768, SOFTMAX_PER_THREAD = SOFTMAX_COLUMNS / 1024;
__global__ void __launch_bounds__(1024) softmax_three_pass(const float* in, float* out) {
  __shared__ float scratch[32];
  const float* row = in + (size_t)blockIdx.x * SOFTMAX_COLUMNS;
  float high = -1e30f;
#pragma unroll 8
  for (int c = threadIdx.x; c < SOFTMAX_COLUMNS; c += 1024) high = fmaxf(high, row[c]);
  high = block_reduce(high, true, scratch);
  float sum = 0.0f;
#pragma unroll 8
  for (int c = threadIdx.x; c < SOFTMAX_COLUMNS; c += 1024) sum += __expf(row[c] - high);
  sum = block_reduce(sum, false, scratch);
  const float scale = 1.0f / sum;
#pragma unroll 8
  for (int c = threadIdx.x; c < SOFTMAX_COLUMNS; c += 1024) out[(size_t)blockIdx.x * SOFTMAX_COLUMNS + c] = __expf(row[c] - high) * scale;
}
__global__ void __launch_bounds__(1024) softmax_one_read(const float* in, float* out) {
  __shared__ float scratch[32];
  const float* row = in + (size_t)blockIdx.x * SOFTMAX_COLUMNS;
  float x[SOFTMAX_PER_THREAD];
  float high = -1e30f;
#pragma unroll
  for (int i = 0; i < SOFTMAX_PER_THREAD; ++i) { x[i] = row[i * 1024 + threadIdx.x]; high = fmaxf(high, x[i]); }
  high = block_reduce(high, true, scratch);
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < SOFTMAX_PER_THREAD; ++i) { x[i] = __expf(x[i] - high); sum += x[i]; }
  sum = block_reduce(sum, false, scratch);
  const float scale = 1.0f / sum;
#pragma unroll
  for (int i = 0; i < SOFTMAX_PER_THREAD; ++i) out[(size_t)blockIdx.x * SOFTMAX_COLUMNS + i * 1024 + threadIdx.x] = x[i] * scale;
}
CASE(softmax_rows) {
  const int rows = pick(792, 2);
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)rows * SOFTMAX_COLUMNS, -4, 4));
  auto in = on_device(*x); auto out = empty<float>(x->size());
  return {[=](int side) { if (side) LAUNCH(softmax_one_read, rows, 1024, 0, in->data, out->data); else LAUNCH(softmax_three_pass, rows, 1024, 0, in->data, out->data); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(y.size(), 60, [&](Largest& l, size_t i) {
            const float* row = x->data() + i / SOFTMAX_COLUMNS * SOFTMAX_COLUMNS; double sum = 0;
            for (int c = 0; c < SOFTMAX_COLUMNS; ++c) sum += std::exp((double)row[c]);
            l.add(y[i], std::exp((double)(*x)[i]) / sum); }); }};
}

// ---- layer norm over short rows
constexpr int NORM_COLUMNS = 64;
__global__ void layer_norm_thread_per_row(const float* in, float* out, int rows) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* x = in + (size_t)row * NORM_COLUMNS;
  float sum = 0.0f, squares = 0.0f;
  for (int c = 0; c < NORM_COLUMNS; ++c) { sum += x[c]; squares += x[c] * x[c]; }
  const float mean = sum / NORM_COLUMNS, scale = rsqrtf(squares / NORM_COLUMNS - mean * mean + 1e-5f);
  for (int c = 0; c < NORM_COLUMNS; ++c) out[(size_t)row * NORM_COLUMNS + c] = (x[c] - mean) * scale;
}
__global__ void layer_norm_warp_per_row(const float* in, float* out, int rows) {
  const int row = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (row >= rows) return;
  const float* x = in + (size_t)row * NORM_COLUMNS;
  float sum = 0.0f, squares = 0.0f;
  for (int c = lane; c < NORM_COLUMNS; c += 32) { sum += x[c]; squares += x[c] * x[c]; }
  for (int offset = 16; offset > 0; offset /= 2) { sum += __shfl_xor_sync(0xffffffffu, sum, offset); squares += __shfl_xor_sync(0xffffffffu, squares, offset); }
  const float mean = sum / NORM_COLUMNS, scale = rsqrtf(squares / NORM_COLUMNS - mean * mean + 1e-5f);
  for (int c = lane; c < NORM_COLUMNS; c += 32) out[(size_t)row * NORM_COLUMNS + c] = (x[c] - mean) * scale;
}
CASE(layer_norm) {
  const int rows = pick(262144, 512);
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)rows * NORM_COLUMNS, -1, 3));
  auto in = on_device(*x); auto out = empty<float>(x->size());
  return {[=](int side) { if (side) LAUNCH(layer_norm_warp_per_row, rows / 8, 256, 0, in->data, out->data, rows); else LAUNCH(layer_norm_thread_per_row, rows / 256, 256, 0, in->data, out->data, rows); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(y.size(), 400, [&](Largest& l, size_t i) {
            const float* row = x->data() + i / NORM_COLUMNS * NORM_COLUMNS; double s = 0, q = 0;
            for (int c = 0; c < NORM_COLUMNS; ++c) { s += row[c]; q += (double)row[c] * row[c]; }
            s /= NORM_COLUMNS; l.add(y[i], ((*x)[i] - s) / std::sqrt(q / NORM_COLUMNS - s * s + 1e-5)); }); }};
}

// ---- transposes
__global__ void transpose_naive(const float* in, float* out, int n) {
  const int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) out[(size_t)x * n + y + k] = in[(size_t)(y + k) * n + x];
}
template <int WIDTH> __global__ void transpose_tile(const float* in, float* out, int n) {
  __shared__ float tile[32][WIDTH];
  int x = blockIdx.x * 32 + threadIdx.x, y = blockIdx.y * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) tile[threadIdx.y + k][threadIdx.x] = in[(size_t)(y + k) * n + x];
  __syncthreads();
  x = blockIdx.y * 32 + threadIdx.x; y = blockIdx.x * 32 + threadIdx.y;
  for (int k = 0; k < 32; k += 8) out[(size_t)(y + k) * n + x] = tile[threadIdx.x][threadIdx.y + k];
}
static Case transposes(bool banks) {
  const int n = pick(4096, 64);
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)n * n));
  auto in = on_device(*x); auto out = empty<float>(x->size());
  return {[=](int side) {
            const dim3 grid(n / 32, n / 32), block(32, 8);
            if (side) LAUNCH(transpose_tile<33>, grid, block, 0, in->data, out->data, n);
            else if (banks) LAUNCH(transpose_tile<32>, grid, block, 0, in->data, out->data, n);
            else LAUNCH(transpose_naive, grid, block, 0, in->data, out->data, n); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(y.size(), 400, [&](Largest& l, size_t i) { l.add(y[i], (*x)[i % n * n + i / n]); }); }};
}
CASE(transpose) { return transposes(false); }
CASE(transpose_padding) { return transposes(true); }

// ---- particles: array of structures or structure of arrays
struct Particle { float x, y, z, vx, vy, vz, mass, charge; };
__global__ void move_structures(Particle* p, float dt, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) p[i].x += p[i].vx * dt;
}
__global__ void move_arrays(float* x, const float* vx, float dt, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] += vx[i] * dt;
}
CASE(particles) {
  const int n = pick(1 << 23, 1 << 12);
  auto x = std::make_shared<std::vector<float>>(random_floats(n, -1, 1, 3));
  auto v = std::make_shared<std::vector<float>>(random_floats(n, -1, 1, 4));
  auto p = std::make_shared<std::vector<Particle>>(n);
  for (int i = 0; i < n; ++i) { (*p)[i] = Particle(); (*p)[i].x = (*x)[i]; (*p)[i].vx = (*v)[i]; }
  auto ps = on_device(*p); auto xs = on_device(*x); auto vs = on_device(*v);
  return {[=](int side) { if (side) LAUNCH(move_arrays, n / 256, 256, 0, xs->data, vs->data, 0.5f, n); else LAUNCH(move_structures, n / 256, 256, 0, ps->data, 0.5f, n); },
          [=] { ps->upload(*p); xs->upload(*x); },
          [=](int side) { std::vector<float> y; std::vector<Particle> q; if (side) y = xs->host(); else q = ps->host();
            return sampled(n, 400, [&](Largest& l, size_t i) { l.add(side ? y[i] : q[i].x, (*x)[i] + 0.5 * (*v)[i]); }); }};
}

// ---- embedding bags: the same kernel, lookups at random or in order
__global__ void embedding_bag(const float* table, const int* ids, float* out, int bags) {
  const int bag = (blockIdx.x * blockDim.x + threadIdx.x) / 32, lane = threadIdx.x % 32;
  if (bag >= bags) return;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 8; ++k) sum += table[(size_t)ids[bag * 8 + k] * 32 + lane];
  out[(size_t)bag * 32 + lane] = sum;
}
CASE(embedding_order) {
  const int rows = pick(1 << 20, 1 << 10), bags = pick(1 << 19, 1 << 8);
  auto table = std::make_shared<std::vector<float>>(random_floats((size_t)rows * 32));
  auto mixed = std::make_shared<std::vector<int>>((size_t)bags * 8), ordered = std::make_shared<std::vector<int>>((size_t)bags * 8);
  uint64_t s = 7;
  std::vector<int> count(rows, 0);
  for (int& id : *mixed) { id = next_random(s) % rows; ++count[id]; }
  size_t at = 0;
  for (int r = 0; r < rows; ++r) for (int k = 0; k < count[r]; ++k) (*ordered)[at++] = r;
  auto t = on_device(*table); auto m = on_device(*mixed), o = on_device(*ordered); auto out = empty<float>((size_t)bags * 32);
  return {[=](int side) { LAUNCH(embedding_bag, bags / 8, 256, 0, t->data, side ? o->data : m->data, out->data, bags); },
          [=] { out->clear(); },
          [=](int side) { auto y = out->host(); const auto& ids = side ? *ordered : *mixed;
            return sampled(y.size(), 400, [&](Largest& l, size_t i) { double e = 0; for (int k = 0; k < 8; ++k) e += (*table)[(size_t)ids[i / 32 * 8 + k] * 32 + i % 32]; l.add(y[i], e); }); }};
}

// ---- eight filters over one signal: which index runs fastest over the blocks
__global__ void filter_energy(const float4* signal, float* energy, int tiles, int filters, int filter_first) {
  const int tile = filter_first ? blockIdx.x / filters : blockIdx.x % tiles;
  const int filter = filter_first ? blockIdx.x % filters : blockIdx.x / tiles;
  const float weight = 0.25f + 0.125f * filter;
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const float4 v = signal[(size_t)tile * 2048 + k * 256 + threadIdx.x];
    const float a = fmaf(v.x, weight, v.y), b = fmaf(v.z, weight, v.w);
    sum += a * a + b * b;
  }
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(&energy[(size_t)filter * tiles + tile], sum);
}
CASE(block_order) {
  const int tiles = pick(6144, 16), filters = 8;  // 6144 tiles of 32 KiB: 192 MiB
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)tiles * 8192));
  auto in = on_device(*x); auto out = empty<float>((size_t)tiles * filters);
  return {[=](int side) { LAUNCH(filter_energy, tiles * filters, 256, 0, (const float4*)in->data, out->data, tiles, filters, side); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(y.size(), 60, [&](Largest& l, size_t i) {
            const float* v = x->data() + i % tiles * 8192; const double w = 0.25 + 0.125 * (i / tiles); double e = 0;
            for (int k = 0; k < 8192; k += 4) { const double a = v[k] * w + v[k + 1], b = v[k + 2] * w + v[k + 3]; e += a * a + b * b; }
            l.add(y[i], e); }); }};
}

// ---- sums of a few long rows: blocks per row
__global__ void row_sums(const float* in, float* out, int columns) {
  const float* row = in + (size_t)blockIdx.x * columns;
  float sum = 0.0f;
#pragma unroll 4
  for (int c = blockIdx.y * blockDim.x + threadIdx.x; c < columns; c += gridDim.y * blockDim.x) sum += row[c];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, offset);
  if (threadIdx.x % 32 == 0) atomicAdd(&out[blockIdx.x], sum);
}
CASE(row_sums_few_blocks) {
  const int rows = 24, columns = pick(1 << 20, 1 << 12);
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)rows * columns, 0, 1));
  auto in = on_device(*x); auto out = empty<float>(rows);
  return {[=](int side) { LAUNCH(row_sums, dim3(rows, side ? 11 : 1), 1024, 0, in->data, out->data, columns); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); Largest l; for (int r = 0; r < rows; ++r) { double e = 0; for (int c = 0; c < columns; ++c) e += (*x)[(size_t)r * columns + c]; l.add(y[r], e); } return l.relative(); }};
}

// ---- hash probes: shared memory asked for
__global__ void probe_table(const unsigned* table, unsigned mask, const unsigned* start, unsigned* out, int hops) {
  DYNAMIC_SHARED(unsigned, mix);
  for (int i = threadIdx.x; i < 1024; i += blockDim.x) mix[i] = i * 2654435761u;
  __syncthreads();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  unsigned at = start[i];
  for (int k = 0; k < hops; ++k) at = (table[at & mask] ^ mix[at & 1023]) + k;
  out[i] = at;
}
CASE(probe_shared_request) {
  const int n = pick(1 << 19, 1 << 11); const unsigned entries_ = pick(1 << 24, 1 << 12);
  auto table = std::make_shared<std::vector<unsigned>>(entries_); auto start = std::make_shared<std::vector<unsigned>>(n);
  uint64_t s = 11; for (auto& v : *table) v = next_random(s); for (auto& v : *start) v = next_random(s);
  auto t = on_device(*table), b = on_device(*start); auto out = empty<unsigned>(n);
#ifndef ON_CPU
  OK(cudaFuncSetAttribute(probe_table, cudaFuncAttributeMaxDynamicSharedMemorySize, 160 * 1024));
#endif
  return {[=](int side) { LAUNCH(probe_table, n / 256, 256, side ? 4096 : 160 * 1024, t->data, entries_ - 1, b->data, out->data, 8); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(n, 400, [&](Largest& l, size_t i) { unsigned at = (*start)[i];
            for (int k = 0; k < 8; ++k) at = ((*table)[at & (entries_ - 1)] ^ ((at & 1023) * 2654435761u)) + k; l.add(y[i], at); }); }};
}

// ---- normalised gain: a fence after every store
template <bool FENCE> __global__ void gain(const float* in, float* out, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const float v = in[i];
    out[i] = v / (1.0f + fabsf(v));
    if (FENCE) __threadfence();
  }
}
CASE(gain_fence) {
  const int n = pick(1 << 24, 1 << 14), grid = pick(1056, 4);
  auto x = std::make_shared<std::vector<float>>(random_floats(n, -3, 3));
  auto in = on_device(*x); auto out = empty<float>(n);
  return {[=](int side) { if (side) LAUNCH(gain<false>, grid, 256, 0, in->data, out->data, n); else LAUNCH(gain<true>, grid, 256, 0, in->data, out->data, n); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(n, 400, [&](Largest& l, size_t i) { const double v = (*x)[i]; l.add(y[i], v / (1 + std::fabs(v))); }); }};
}

// ---- streaming through a tile in shared memory, few warps: copy, wait, compute, or copy the next tile meanwhile
__device__ float smooth(const float* tile, int i) {
  float sum = 0.0f;
#pragma unroll
  for (int k = 0; k < 32; ++k) sum = fmaf(tile[(i + k) & 1023], 0.03125f, sum);
  return sum;
}
__global__ void __launch_bounds__(256) smooth_plain(const float* in, float* out, int tiles) {
  DYNAMIC_SHARED(float, tile);
  for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
    reinterpret_cast<float4*>(tile)[threadIdx.x] = reinterpret_cast<const float4*>(in + (size_t)t * 1024)[threadIdx.x];
    __syncthreads();
    for (int i = threadIdx.x; i < 1024; i += 256) out[(size_t)t * 1024 + i] = smooth(tile, i);
    __syncthreads();
  }
}
__global__ void __launch_bounds__(256) smooth_pipelined(const float* in, float* out, int tiles) {
  DYNAMIC_SHARED(float, tile);
  int stage = 0;
  if ((int)blockIdx.x < tiles) __pipeline_memcpy_async(tile + threadIdx.x * 4, in + (size_t)blockIdx.x * 1024 + threadIdx.x * 4, 16);
  __pipeline_commit();
  for (int t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int next = t + gridDim.x;
    if (next < tiles) __pipeline_memcpy_async(tile + (stage ^ 1) * 1024 + threadIdx.x * 4, in + (size_t)next * 1024 + threadIdx.x * 4, 16);
    __pipeline_commit();
    __pipeline_wait_prior(1);
    __syncthreads();
    for (int i = threadIdx.x; i < 1024; i += 256) out[(size_t)t * 1024 + i] = smooth(tile + stage * 1024, i);
    __syncthreads();
    stage ^= 1;
  }
}
CASE(smooth_pipeline) {
  const int tiles = pick(8192, 24), grid = multiprocessors(), shared = 120 * 1024;  // one block a multiprocessor, both
  auto x = std::make_shared<std::vector<float>>(random_floats((size_t)tiles * 1024));
  auto in = on_device(*x); auto out = empty<float>(x->size());
#ifndef ON_CPU
  OK(cudaFuncSetAttribute(smooth_plain, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
  OK(cudaFuncSetAttribute(smooth_pipelined, cudaFuncAttributeMaxDynamicSharedMemorySize, shared));
#endif
  return {[=](int side) { if (side) LAUNCH(smooth_pipelined, grid, 256, shared, in->data, out->data, tiles); else LAUNCH(smooth_plain, grid, 256, shared, in->data, out->data, tiles); },
          [=] { out->clear(); },
          [=](int) { auto y = out->host(); return sampled(y.size(), 400, [&](Largest& l, size_t i) { double e = 0; const size_t tile = i / 1024 * 1024;
            for (int k = 0; k < 32; ++k) e += (*x)[tile + (i - tile + k) % 1024] / 32.0; l.add(y[i], e); }); }};
}
