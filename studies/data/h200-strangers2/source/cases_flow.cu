// Grids, blocks, warps, barriers and the order of the work.
#include "harness.h"
using std::vector;

__device__ __forceinline__ float simulate(float x, int steps) { float v = 0.1f; for (int k = 0; k < steps; ++k) { v = fmaf(-0.01f, x, v); x = fmaf(0.01f, v, x); } return x; }
__global__ void step_all(const int* __restrict__ alive, const float* __restrict__ x, float* __restrict__ y, int n, int steps) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n && alive[i]) y[i] = simulate(x[i], steps);
}
__global__ void step_listed(const int* __restrict__ list, const float* __restrict__ x, float* __restrict__ y, int n, int steps) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { const int p = list[i]; y[p] = simulate(x[p], steps); }
}
CASE(particles_alive) {
  const int n = pick(1 << 20, 1 << 10), steps = pick(1024, 64); vector<int> alive(n), list; uint64_t s = 17; for (int i = 0; i < n; ++i) { alive[i] = (next_random(s) >> 6 & 7) == 0; if (alive[i]) list.push_back(i); }
  const int living = (int)list.size(); auto x = random_floats(n); auto da = on_device(alive), dl = on_device(list); auto dx = on_device(x), y = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(step_all, over(n, 256), 256, 0, da->data, dx->data, y->data, n, steps); else LAUNCH(step_listed, over(living, 256), 256, 0, dl->data, dx->data, y->data, living, steps); },
          [=] { y->clear(); },
          [=](int) { auto h = y->host(); return sampled(n, 300, [&](Largest& l, size_t i) { if (!alive[i]) { l.add(h[i], 0); return; } double a = x[i], v = 0.1f; for (int k = 0; k < steps; ++k) { v -= 0.01f * a; a += 0.01f * v; } l.add(h[i], a); }); }};
}

template <bool DEALT> __global__ void pair_energy(const float4* __restrict__ p, float* __restrict__ partial, int n) {
  const int rows = n / gridDim.x; float energy = 0;
  for (int k = 0; k < rows; ++k) {
    const int i = DEALT ? k * gridDim.x + blockIdx.x : blockIdx.x * rows + k; const float4 a = p[i];
    for (int j = threadIdx.x; j < i; j += blockDim.x) { const float4 b = p[j]; const float x = a.x - b.x, y = a.y - b.y, z = a.z - b.z; energy += a.w * b.w * rsqrtf(x * x + y * y + z * z + 0.01f); }
  }
  partial[blockIdx.x * blockDim.x + threadIdx.x] = energy;
}
CASE(pair_energy_rows) {
  const int blocks = multiprocessors(), threads = pick(1024, 64), n = blocks * pick(124, 24); auto raw = random_floats((size_t)n * 4, 0.1, 1); vector<float4> p(n); for (int i = 0; i < n; ++i) p[i] = make_float4(raw[4 * i], raw[4 * i + 1], raw[4 * i + 2], raw[4 * i + 3]);
  auto dp = on_device(p); auto partial = empty<float>((size_t)blocks * threads); auto expected = std::make_shared<double>(-1);
  return {[=](int side) { if (side == 0) LAUNCH(pair_energy<false>, blocks, threads, 0, dp->data, partial->data, n); else LAUNCH(pair_energy<true>, blocks, threads, 0, dp->data, partial->data, n); },
          [=] { partial->clear(); },
          [=](int) { double sum = 0; for (float f : partial->host()) sum += f;
            if (*expected < 0) { float e = 0; *expected = 0; for (int i = 0; i < n; ++i) { e = 0; for (int j = 0; j < i; ++j) { float x = p[i].x - p[j].x, y = p[i].y - p[j].y, z = p[i].z - p[j].z; e += p[i].w * p[j].w / sqrtf(x * x + y * y + z * z + 0.01f); } *expected += e; } }
            return std::fabs(sum - *expected) / *expected; }};
}

__global__ void decode_partition(const float4* __restrict__ keys, const float4* __restrict__ query, float* sums, int context) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, head = blockIdx.x, chunk = context / gridDim.y, first = blockIdx.y * chunk;
  const float4 q = query[head * 32 + lane]; float mine = 0;
  for (int j = first + warp; j < first + chunk; j += 8) {
    const float4 k = keys[((size_t)head * context + j) * 32 + lane]; float dot = q.x * k.x + q.y * k.y + q.z * k.z + q.w * k.w;
    for (int m = 16; m > 0; m /= 2) dot += __shfl_xor_sync(~0u, dot, m);
    mine += __expf(dot * 0.088388f);
  }
  if (lane == 0) atomicAdd(&sums[head], mine);
}
CASE(decode_heads) {
  const int heads = pick(16, 2), context = pick(8192, 128), parts = pick(64, 4); auto raw = random_floats((size_t)heads * context * 128), q = random_floats((size_t)heads * 128, -1, 1, 9);
  auto keys = on_device(raw), query = on_device(q), sums = empty<float>(heads); auto expected = std::make_shared<vector<double>>();
  return {[=](int side) { LAUNCH(decode_partition, dim3(heads, side ? parts : 1), 256, 0, (const float4*)keys->data, (const float4*)query->data, sums->data, context); },
          [=] { sums->clear(); },
          [=](int) { auto h = sums->host(); Largest l; if (expected->empty()) for (int a = 0; a < heads; ++a) { double sum = 0; for (int j = 0; j < context; ++j) { float d = 0; for (int k = 0; k < 128; ++k) d += raw[((size_t)a * context + j) * 128 + k] * q[a * 128 + k]; sum += exp(d * 0.088388); } expected->push_back(sum); }
            for (int a = 0; a < heads; ++a) l.add(h[a], (*expected)[a]); return l.relative(); }};
}

__device__ __forceinline__ float basket_path(int item, int steps) {
  float x[24];
#pragma unroll
  for (int k = 0; k < 24; ++k) x[k] = (float)((item * 37 + k * 101) & 1023) * 0.0009765625f;
#pragma unroll 1
  for (int s = 0; s < steps; ++s) {
    float y[24];
#pragma unroll
    for (int k = 0; k < 24; ++k) y[k] = fmaf(x[k], 0.7f, 0.1f * x[(k + 5) % 24] + 0.15f * x[(k + 11) % 24]) + 0.01f;
#pragma unroll
    for (int k = 0; k < 24; ++k) x[k] = y[k];
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 24; ++k) sum = fmaf(sum, 0.9f, x[k]);
  return sum;
}
__global__ void __launch_bounds__(1024, 1) price_baskets(float* __restrict__ price, int items, int steps) {
  for (int k = 0; k < items; ++k) { const int item = (blockIdx.x * items + k) * blockDim.x + threadIdx.x; price[item] = basket_path(item, steps); }
}
CASE(basket_grain) {
  const int blocks = multiprocessors() + multiprocessors() / 16, threads = pick(1024, 32), items = 8, steps = 32; const size_t n = (size_t)blocks * threads * items; auto price = empty<float>(n);
  return {[=](int side) { LAUNCH(price_baskets, side ? blocks * items : blocks, threads, 0, price->data, side ? 1 : items, steps); },
          [=] { price->clear(); },
          [=](int) { auto h = price->host(); return sampled(n, 200, [&](Largest& l, size_t i) { double x[24], y[24], sum = 0; for (int k = 0; k < 24; ++k) x[k] = (((int)i * 37 + k * 101) & 1023) / 1024.0;
            for (int s = 0; s < steps; ++s) { for (int k = 0; k < 24; ++k) y[k] = x[k] * 0.7 + 0.1 * x[(k + 5) % 24] + 0.15 * x[(k + 11) % 24] + 0.01; memcpy(x, y, sizeof x); }
            for (int k = 0; k < 24; ++k) sum = sum * 0.9 + x[k]; l.add(h[i], sum); }); }};
}

__global__ void nearest_code_outer(const float* __restrict__ x, const float* __restrict__ codes, float* best, int n, int count) {
  for (int k = 0; k < count; ++k) {
    const float c = codes[k];
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) { const float d = fabsf(x[i] - c); best[i] = k ? fminf(best[i], d) : d; }
  }
}
__global__ void nearest_code_inner(const float* __restrict__ x, const float* __restrict__ codes, float* best, int n, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const float v = x[i]; float least = 1e30f;
    for (int k = 0; k < count; ++k) least = fminf(least, fabsf(v - codes[k]));
    best[i] = least;
  }
}
CASE(codebook_passes) {
  const int n = pick(1 << 24, 1 << 12), count = 6, blocks = multiprocessors() * 8; auto x = random_floats(n), codes = random_floats(count, -1, 1, 77); auto dx = on_device(x), dc = on_device(codes), best = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(nearest_code_outer, blocks, 256, 0, dx->data, dc->data, best->data, n, count); else LAUNCH(nearest_code_inner, blocks, 256, 0, dx->data, dc->data, best->data, n, count); },
          [=] { best->clear(); },
          [=](int) { auto h = best->host(); return sampled(n, 1000, [&](Largest& l, size_t i) { double least = 9; for (float c : codes) least = std::min(least, std::fabs((double)x[i] - c)); l.add(h[i], least); }); }};
}

__global__ void neighbour_forces(const float4* __restrict__ position, const int* __restrict__ neighbours, float* __restrict__ force, int n, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float4 a = position[i]; float sum = 0;
  for (int k = 0; k < count; ++k) { const float4 b = position[neighbours[(size_t)k * n + i]]; const float x = a.x - b.x, y = a.y - b.y, z = a.z - b.z, r = x * x + y * y + z * z + 0.01f; sum += b.w / r; }
  force[i] = sum;
}
CASE(neighbour_numbering) {
  const int n = pick(1 << 21, 1 << 10), count = 8; auto raw = random_floats((size_t)n * 4, 0.1, 1);
  auto place = [=](int i, bool shuffled) { return shuffled ? (int)((uint64_t)i * 1664525u % (unsigned)n) ^ (n / 3) : i; };  // odd factor, power of two: a permutation
  auto near = [=](int i, int k) { return (int)(((unsigned)i + (unsigned)(k * 37 + i % 5 * 11) % 300u) % (unsigned)n); };
  auto positions = [=](bool shuffled) { vector<float4> p(n); for (int i = 0; i < n; ++i) p[place(i, shuffled)] = make_float4(raw[4 * i], raw[4 * i + 1], raw[4 * i + 2], raw[4 * i + 3]); return p; };
  auto lists = [=](bool shuffled) { vector<int> l((size_t)n * count); for (int i = 0; i < n; ++i) { const int at = place(i, shuffled); for (int k = 0; k < count; ++k) l[(size_t)k * n + at] = place(near(i, k), shuffled); } return l; };
  auto p0 = on_device(positions(true)), p1 = on_device(positions(false)); auto l0 = on_device(lists(true)), l1 = on_device(lists(false)); auto force = empty<float>(n);
  return {[=](int side) { LAUNCH(neighbour_forces, over(n, 256), 256, 0, side ? p1->data : p0->data, side ? l1->data : l0->data, force->data, n, count); },
          [=] { force->clear(); },
          [=](int side) { auto h = force->host(); return sampled(n, 1000, [&](Largest& l, size_t i) { double sum = 0; for (int k = 0; k < count; ++k) { const float *a = &raw[4 * i], *b = &raw[4 * (size_t)near((int)i, k)]; double r = 0.01; for (int d = 0; d < 3; ++d) r += (double)(a[d] - b[d]) * (a[d] - b[d]); sum += b[3] / r; } l.add(h[place((int)i, side == 0)], sum); }); }};
}

__global__ void soft_threshold(const float* __restrict__ x, float* __restrict__ y, int n, float limit) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { const float v = x[i], m = fabsf(v) - limit; y[i] = m > 0 ? copysignf(m, v) : 0.0f; }
}
CASE(threshold_blocks) {
  const int n = pick(1 << 24, 1 << 11); auto x = random_floats(n); auto dx = on_device(x), y = empty<float>(n);
  return {[=](int side) { const int b = side ? 256 : 32; LAUNCH(soft_threshold, over(n, b), b, 0, dx->data, y->data, n, 0.25f); }, [=] { y->clear(); },
          [=](int) { auto h = y->host(); return sampled(n, 1000, [&](Largest& l, size_t i) { double m = std::fabs(x[i]) - 0.25; l.add(h[i], m > 0 ? std::copysign(m, x[i]) : 0); }); }};
}

template <bool BLOCK> __global__ void relax_tiles(const float* __restrict__ in, float* __restrict__ out, const int* __restrict__ next, int steps) {
  __shared__ float s[1024];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32; float v = in[blockIdx.x * 1024 + t];
  int at = (blockIdx.x * 32 + warp) * 97;
  for (int step = 0; step < steps; ++step) {
    s[t] = v;
    if (BLOCK) __syncthreads(); else __syncwarp();
    v = 0.25f * (s[warp * 32 + (lane + 31) % 32] + s[warp * 32 + (lane + 1) % 32]) + 0.5f * v;
    if ((step + 5 * warp) % 16 == 0) { for (int hop = 0; hop < 4; ++hop) at = next[at]; v += 0.001f * (float)(at & 255); }
    if (BLOCK) __syncthreads(); else __syncwarp();
  }
  out[blockIdx.x * 1024 + t] = v;
}
CASE(tiles_in_step) {
  const int blocks = pick(528, 2), steps = 64, nodes = 1 << 20; auto x = random_floats((size_t)blocks * 1024); vector<int> next(nodes); for (int i = 0; i < nodes; ++i) next[i] = (int)(((unsigned)i * 1664525u + 1013904223u) & (nodes - 1));
  auto in = on_device(x), out = empty<float>(x.size()); auto dn = on_device(next);
  return {[=](int side) { if (side == 0) LAUNCH(relax_tiles<true>, blocks, 1024, 0, in->data, out->data, dn->data, steps); else LAUNCH(relax_tiles<false>, blocks, 1024, 0, in->data, out->data, dn->data, steps); },
          [=] { out->clear(); },
          [=](int) { auto h = out->host(); Largest l; for (int w = 0; w < blocks * 32; w += 13) { double v[32], u[32]; for (int k = 0; k < 32; ++k) v[k] = x[w * 32 + k]; int at = w * 97;
            for (int step = 0; step < steps; ++step) { for (int k = 0; k < 32; ++k) u[k] = 0.25 * (v[(k + 31) % 32] + v[(k + 1) % 32]) + 0.5 * v[k]; const bool far = (step + 5 * (w % 32)) % 16 == 0; if (far) for (int hop = 0; hop < 4; ++hop) at = next[at]; for (int k = 0; k < 32; ++k) v[k] = u[k] + (far ? 0.001 * (at & 255) : 0); }
            for (int k = 0; k < 32; ++k) l.add(h[w * 32 + k], v[k]); } return l.relative(); }};
}

template <int PITCH> __global__ void cumulate_rows(const float* __restrict__ in, float* __restrict__ out) {
  __shared__ float s[128 * PITCH];
  const size_t first = (size_t)blockIdx.x * 4096; const int t = threadIdx.x;
  for (int i = t; i < 4096; i += 128) s[i / 32 * PITCH + i % 32] = in[first + i];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < 32; ++k) { sum += s[t * PITCH + k]; s[t * PITCH + k] = sum; }
  __syncthreads();
  for (int i = t; i < 4096; i += 128) out[first + i] = s[i / 32 * PITCH + i % 32];
}
CASE(cumulate_chunks) {
  const int blocks = pick(4096, 4); auto x = random_floats((size_t)blocks * 4096); auto in = on_device(x), out = empty<float>(x.size());
  return {[=](int side) { if (side == 0) LAUNCH(cumulate_rows<32>, blocks, 128, 0, in->data, out->data); else LAUNCH(cumulate_rows<33>, blocks, 128, 0, in->data, out->data); }, [=] { out->clear(); },
          [=](int) { auto h = out->host(); return sampled(h.size(), 1000, [&](Largest& l, size_t i) { double sum = 0; for (size_t k = i / 32 * 32; k <= i; ++k) sum += x[k]; l.add(h[i], sum); }); }};
}

template <bool ALL> __global__ void scale_groups(const float* __restrict__ in, float* __restrict__ out) {
  __shared__ float s[256]; __shared__ float total;
  const size_t i = (size_t)blockIdx.x * 256 + threadIdx.x; const int t = threadIdx.x; const float v = in[i];
  if (ALL) {
    float sum = v;
    for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
    if (t % 32 == 0) s[t / 32] = sum;
    __syncthreads();
    if (t == 0) { float all = 0; for (int k = 0; k < 8; ++k) all += s[k]; total = all; }
  } else {
    s[t] = v;
    __syncthreads();
    if (t == 0) { float all = 0; for (int k = 0; k < 256; ++k) all += s[k]; total = all; }
  }
  __syncthreads();
  out[i] = v / total;
}
CASE(group_scale) {
  const int blocks = pick(1 << 16, 16); auto x = random_floats((size_t)blocks * 256, 0, 1); auto in = on_device(x), out = empty<float>(x.size());
  return {[=](int side) { if (side == 0) LAUNCH(scale_groups<false>, blocks, 256, 0, in->data, out->data); else LAUNCH(scale_groups<true>, blocks, 256, 0, in->data, out->data); }, [=] { out->clear(); },
          [=](int) { auto h = out->host(); return sampled(h.size(), 500, [&](Largest& l, size_t i) { double sum = 0; for (size_t k = i / 256 * 256; k < i / 256 * 256 + 256; ++k) sum += x[k]; l.add(h[i], x[i] / sum); }); }};
}

__global__ void triad_one(const float* __restrict__ b, const float* __restrict__ c, float* __restrict__ a, int n) {
  const int stride = gridDim.x * blockDim.x;
#pragma unroll 1
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) a[i] = b[i] + 3.0f * c[i];
}
__global__ void triad_eight(const float* __restrict__ b, const float* __restrict__ c, float* __restrict__ a, int n) {
  const int stride = gridDim.x * blockDim.x;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += 8 * stride) {
    float x[8], y[8];
#pragma unroll
    for (int k = 0; k < 8; ++k) if (i + k * stride < n) { x[k] = b[i + k * stride]; y[k] = c[i + k * stride]; }
#pragma unroll
    for (int k = 0; k < 8; ++k) if (i + k * stride < n) a[i + k * stride] = x[k] + 3.0f * y[k];
  }
}
CASE(triad_ahead) {
  const int n = pick(1 << 23, 1 << 12), blocks = multiprocessors(); auto b = random_floats(n), c = random_floats(n, -1, 1, 5); auto db = on_device(b), dc = on_device(c), a = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(triad_one, blocks, 256, 0, db->data, dc->data, a->data, n); else LAUNCH(triad_eight, blocks, 256, 0, db->data, dc->data, a->data, n); }, [=] { a->clear(); },
          [=](int) { auto h = a->host(); return sampled(n, 1000, [&](Largest& l, size_t i) { l.add(h[i], b[i] + 3.0 * c[i]); }); }};
}

__global__ void one_update(float* x, const float* __restrict__ y, int n, float a) { const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) x[i] = fmaf(a, x[i], y[i]); }
__global__ void all_updates(float* x, const float* __restrict__ y, int n, float a, int times) { const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { float v = x[i]; const float w = y[i]; for (int k = 0; k < times; ++k) v = fmaf(a, v, w); x[i] = v; } }
CASE(update_chain) {
  const int n = pick(1 << 15, 1 << 9), times = 8; auto x = random_floats(n), y = random_floats(n, -1, 1, 3); auto dx = on_device(x), dy = on_device(y);
  return {[=](int side) { if (side == 0) for (int k = 0; k < times; ++k) LAUNCH(one_update, over(n, 256), 256, 0, dx->data, dy->data, n, 0.8f); else LAUNCH(all_updates, over(n, 256), 256, 0, dx->data, dy->data, n, 0.8f, times); }, [=] { dx->upload(x); },
          [=](int) { auto h = dx->host(); return sampled(n, 500, [&](Largest& l, size_t i) { double v = x[i]; for (int k = 0; k < times; ++k) v = 0.8f * v + y[i]; l.add(h[i], v); }); }};
}
