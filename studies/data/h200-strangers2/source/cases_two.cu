// Two things change at once; one of them matters more.
#include "harness.h"
using std::vector;

struct __align__(16) Two { unsigned long long a, b; };
struct Prime { unsigned long long p, inverse; };
__global__ void buckets_plain(const unsigned long long* __restrict__ key, unsigned char* __restrict__ bucket, int n, unsigned long long p, unsigned long long q) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) { const unsigned long long k = key[i]; bucket[i] = (unsigned char)(k % p ^ (k * 0x9e3779b97f4a7c15ull) % q); }
}
__device__ __forceinline__ unsigned long long rest(unsigned long long k, Prime m) {
  unsigned long long r = k - __umul64hi(k, m.inverse) * m.p;
  if (r >= m.p) r -= m.p;
  if (r >= m.p) r -= m.p;
  return r;
}
__device__ __forceinline__ unsigned char bucket_of(unsigned long long k, Prime p, Prime q) { return (unsigned char)(rest(k, p) ^ rest(k * 0x9e3779b97f4a7c15ull, q)); }
__global__ void buckets_inverse(const Two* __restrict__ key, uchar4* __restrict__ bucket, int n, Prime p, Prime q) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i * 4 >= n) return;
  const Two a = key[2 * i], b = key[2 * i + 1];
  bucket[i] = make_uchar4(bucket_of(a.a, p, q), bucket_of(a.b, p, q), bucket_of(b.a, p, q), bucket_of(b.b, p, q));
}
CASE(bucket_numbers) {
  const int n = pick(1 << 23, 1 << 11); vector<unsigned long long> key(n); uint64_t s = 41; for (auto& k : key) k = (uint64_t)next_random(s) << 33 ^ (uint64_t)next_random(s) << 11 ^ next_random(s);
  const unsigned long long p = 1000000007ull, q = 998244353ull; auto dk = on_device(key); auto out = empty<unsigned char>(n);
  return {[=](int side) { if (side == 0) LAUNCH(buckets_plain, over(n, 256), 256, 0, dk->data, out->data, n, p, q); else LAUNCH(buckets_inverse, over(n / 4, 256), 256, 0, (const Two*)dk->data, (uchar4*)out->data, n, Prime{p, ~0ull / p}, Prime{q, ~0ull / q}); },
          [=] { out->clear(); },
          [=](int) { auto h = out->host(); bool same = true; for (int i = 0; i < n; i += 7) same = same && h[i] == (unsigned char)(key[i] % p ^ (key[i] * 0x9e3779b97f4a7c15ull) % q); return exact(same); }};
}

__global__ void deposit_plain(const int* __restrict__ x, const int* __restrict__ y, int* charge, int n, int size, int cell) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicAdd(&charge[y[i] % size / cell * (size / cell) + x[i] % size / cell], 1 + (i & 3));
}
__global__ void deposit_private(const int* __restrict__ x, const int* __restrict__ y, int* charge, int n, int mask, int bits) {
  __shared__ int mine[256];
  mine[threadIdx.x] = 0;
  __syncthreads();
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) atomicAdd(&mine[((y[i] & mask) >> bits) * 16 + ((x[i] & mask) >> bits)], 1 + (i & 3));
  __syncthreads();
  atomicAdd(&charge[threadIdx.x], mine[threadIdx.x]);
}
CASE(charge_deposit) {
  const int n = pick(1 << 22, 1 << 12), size = 4096, cell = 256; vector<int> x(n), y(n), expected(256); uint64_t s = 51;
  for (int i = 0; i < n; ++i) { x[i] = next_random(s) >> 8 & 16383; y[i] = next_random(s) >> 8 & 16383; expected[y[i] % size / cell * 16 + x[i] % size / cell] += 1 + (i & 3); }
  auto dx = on_device(x), dy = on_device(y), charge = empty<int>(256); const int blocks = multiprocessors() * 8;
  return {[=](int side) { if (side == 0) LAUNCH(deposit_plain, over(n, 256), 256, 0, dx->data, dy->data, charge->data, n, size, cell); else LAUNCH(deposit_private, blocks, 256, 0, dx->data, dy->data, charge->data, n, size - 1, 8); },
          [=] { charge->clear(); }, [=](int) { return exact(charge->host() == expected); }};
}

template <int EACH> __global__ void gather_rows(const float* __restrict__ table, const int* __restrict__ index, float* __restrict__ out, int n) {
  const int i = blockIdx.x * blockDim.x * EACH + threadIdx.x; float v[EACH];
#pragma unroll
  for (int k = 0; k < EACH; ++k) if (i + k * blockDim.x < n) v[k] = table[index[i + k * blockDim.x]];
#pragma unroll
  for (int k = 0; k < EACH; ++k) if (i + k * blockDim.x < n) out[i + k * blockDim.x] = v[k];
}
CASE(lookup_order) {
  const int n = pick(1 << 22, 1 << 11), spread = 8; auto table = random_floats((size_t)n * spread); vector<int> sorted(n), mixed(n); uint64_t s = 61;
  for (int i = 0; i < n; ++i) sorted[i] = i * spread + (next_random(s) >> 5 & 7);
  for (int i = 0; i < n; ++i) mixed[i] = sorted[(uint64_t)i * 1664525u + 12345u & (unsigned)(n - 1)];
  auto dt = on_device(table), out = empty<float>(n); auto d0 = on_device(mixed), d1 = on_device(sorted);
  return {[=](int side) { if (side == 0) LAUNCH(gather_rows<1>, over(n, 256), 256, 0, dt->data, d0->data, out->data, n); else LAUNCH(gather_rows<4>, over(n, 1024), 256, 0, dt->data, d1->data, out->data, n); },
          [=] { out->clear(); },
          [=](int side) { auto h = out->host(); return sampled(n, 2000, [&](Largest& l, size_t i) { l.add(h[i], table[(side ? sorted : mixed)[i]]); }); }};
}

template <int PITCH, bool EXTRA> __global__ void project_tiles(const float* __restrict__ in, const float* __restrict__ weight, float* __restrict__ out) {
  __shared__ float s[128 * PITCH]; __shared__ float w[64];
  const int t = threadIdx.x; const size_t first = (size_t)blockIdx.x * 128 * 64;
  if (t < 64) w[t] = weight[t];
  for (int i = t; i < 128 * 64; i += 128) s[i / 64 * PITCH + i % 64] = in[first + i];
  __syncthreads();
  float sum = 0;
  for (int k = 0; k < 64; k += 16) {
#pragma unroll
    for (int j = 0; j < 16; ++j) sum = fmaf(s[t * PITCH + k + j], w[k + j], sum);
    if (EXTRA) __syncthreads();
  }
  out[(size_t)blockIdx.x * 128 + t] = sum;
}
CASE(tile_project) {
  const int blocks = pick(3072, 4); auto x = random_floats((size_t)blocks * 128 * 64), w = random_floats(64, 0, 1, 8); auto in = on_device(x), dw = on_device(w), out = empty<float>((size_t)blocks * 128);
  return {[=](int side) { if (side == 0) LAUNCH((project_tiles<64, true>), blocks, 128, 0, in->data, dw->data, out->data); else LAUNCH((project_tiles<65, false>), blocks, 128, 0, in->data, dw->data, out->data); }, [=] { out->clear(); },
          [=](int) { auto h = out->host(); return sampled(h.size(), 500, [&](Largest& l, size_t i) { double sum = 0; for (int k = 0; k < 64; ++k) sum += (double)x[i * 64 + k] * w[k]; l.add(h[i], sum); }); }};
}

template <class T> __global__ void price_calls(const float* __restrict__ spot, const float* __restrict__ strike, float* __restrict__ price, int n, T rate, T sigma) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const T s = spot[i], k = strike[i], d1 = (log(s / k) + rate + sigma * sigma * T(0.5)) / sigma, d2 = d1 - sigma;
  price[i] = (float)(s * T(0.5) * erfc(-d1 * T(0.70710678118)) - k * exp(-rate) * T(0.5) * erfc(-d2 * T(0.70710678118)));
}
CASE(call_prices) {
  const int n = pick(1 << 22, 1 << 11); auto spot = random_floats(n, 50, 150), strike = random_floats(n, 60, 140, 6); auto ds = on_device(spot), dk = on_device(strike), price = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(price_calls<double>, over(n, 64), 64, 0, ds->data, dk->data, price->data, n, 0.03, 0.2); else LAUNCH(price_calls<float>, over(n, 256), 256, 0, ds->data, dk->data, price->data, n, 0.03f, 0.2f); },
          [=] { price->clear(); },
          [=](int) { auto h = price->host(); return sampled(n, 1000, [&](Largest& l, size_t i) { double s = spot[i], k = strike[i], a = (log(s / k) + 0.03 + 0.02) / 0.2, b = a - 0.2; l.add(h[i], 0.5 * s * erfc(-a * 0.70710678118) - 0.5 * k * exp(-0.03) * erfc(-b * 0.70710678118)); }); }};
}
