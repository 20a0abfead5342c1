// Arithmetic, functions, registers and instructions.
#include "harness.h"
using std::vector;

__constant__ float bank_weights[48];
__device__ __forceinline__ void filter_bank(const float* __restrict__ x, float* __restrict__ y, int n, int length) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float a[48];
#pragma unroll
  for (int k = 0; k < 48; ++k) a[k] = bank_weights[k];
#pragma unroll 1
  for (int j = 0; j < length; ++j) {
    const float v = x[(size_t)j * n + i];
#pragma unroll
    for (int k = 0; k < 48; ++k) a[k] = fmaf(a[k], v, a[(k + 7) % 48]);
  }
  float sum = 0;
#pragma unroll
  for (int k = 0; k < 48; ++k) sum = fmaf(sum, 0.5f, a[k]);
  y[i] = sum;
}
__global__ void __launch_bounds__(256, 8) bank_resident(const float* __restrict__ x, float* __restrict__ y, int n, int length) { filter_bank(x, y, n, length); }
__global__ void __launch_bounds__(256, 2) bank_roomy(const float* __restrict__ x, float* __restrict__ y, int n, int length) { filter_bank(x, y, n, length); }
CASE(filter_bank) {
  const int n = pick(1 << 18, 1 << 9), length = 64; auto w = random_floats(48, 0.5, 1, 2); auto x = random_floats((size_t)n * length, -0.4, 0.4, 3);
  TO_SYMBOL(bank_weights, w);
  auto dx = on_device(x), y = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(bank_resident, over(n, 256), 256, 0, dx->data, y->data, n, length); else LAUNCH(bank_roomy, over(n, 256), 256, 0, dx->data, y->data, n, length); },
          [=] { y->clear(); },
          [=](int) { auto h = y->host(); return sampled(n, 100, [&](Largest& l, size_t i) { double a[48], sum = 0; for (int k = 0; k < 48; ++k) a[k] = w[k];
            for (int j = 0; j < length; ++j) for (int k = 0; k < 48; ++k) a[k] = a[k] * x[(size_t)j * n + i] + a[(k + 7) % 48];
            for (int k = 0; k < 48; ++k) sum = sum * 0.5 + a[k]; l.add(h[i], sum); }); }};
}

__device__ __forceinline__ void exchange_pair(float& a, float& b) { const float low = fminf(a, b); b = fmaxf(a, b); a = low; }
template <int RADIUS> __global__ void median(const float* __restrict__ in, float* __restrict__ out, int width, int height, int given) {
  const int radius = RADIUS ? RADIUS : given, count = (2 * radius + 1) * (2 * radius + 1);
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x < radius || y < radius || x >= width - radius || y >= height - radius) return;
  float v[RADIUS ? (2 * RADIUS + 1) * (2 * RADIUS + 1) : 49];
#pragma unroll
  for (int dy = -radius; dy <= radius; ++dy)
#pragma unroll
    for (int dx = -radius; dx <= radius; ++dx) v[(dy + radius) * (2 * radius + 1) + dx + radius] = in[(size_t)(y + dy) * width + x + dx];
#pragma unroll
  for (int round = 0; round < count; ++round)
#pragma unroll
    for (int k = round % 2; k + 1 < count; k += 2) exchange_pair(v[k], v[k + 1]);
  out[(size_t)y * width + x] = v[count / 2];
}
CASE(median_window) {
  const int w = pick(4096, 64), h = pick(2048, 32); auto image = random_floats((size_t)w * h, 0, 1); auto in = on_device(image), out = empty<float>(image.size());
  return {[=](int side) { dim3 grid(w / 32, h / 8), block(32, 8); if (side == 0) LAUNCH(median<0>, grid, block, 0, in->data, out->data, w, h, 1); else LAUNCH(median<1>, grid, block, 0, in->data, out->data, w, h, 1); },
          [=] { out->clear(); },
          [=](int) { auto o = out->host(); return sampled(o.size(), 2000, [&](Largest& l, size_t i) { int x = i % w, y = i / w; if (x < 1 || y < 1 || x >= w - 1 || y >= h - 1) { l.add(o[i], 0); return; }
            vector<float> v; for (int a = -1; a <= 1; ++a) for (int b = -1; b <= 1; ++b) v.push_back(image[(size_t)(y + a) * w + x + b]);
            for (int a = 0; a < 9; ++a) for (int b = a + 1; b < 9; ++b) if (v[b] < v[a]) std::swap(v[a], v[b]); l.add(o[i], v[4]); }); }};
}

__global__ void relax_wide(const float* __restrict__ in, float* __restrict__ out, int n, int steps) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = in[i];
  const float drive = x;
  for (int k = 0; k < steps; ++k) x = x + 0.1 * (drive - x * (1.3 + 0.2 * x));
  out[i] = x;
}
__global__ void relax_single(const float* __restrict__ in, float* __restrict__ out, int n, int steps) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float x = in[i];
  const float drive = x;
  for (int k = 0; k < steps; ++k) x = x + 0.1f * (drive - x * (1.3f + 0.2f * x));
  out[i] = x;
}
CASE(relax_literals) {
  const int n = pick(1 << 21, 1 << 10), steps = 96; auto x = random_floats(n, 0.1, 1); auto in = on_device(x), out = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(relax_wide, over(n, 256), 256, 0, in->data, out->data, n, steps); else LAUNCH(relax_single, over(n, 256), 256, 0, in->data, out->data, n, steps); },
          [=] { out->clear(); },
          [=](int) { auto h = out->host(); return sampled(n, 500, [&](Largest& l, size_t i) { double v = x[i]; for (int k = 0; k < steps; ++k) v += 0.1 * (x[i] - v * (1.3 + 0.2 * v)); l.add(h[i], v); }); }};
}

struct Divider { unsigned d, factor, shift; };
static Divider divider(unsigned d) { unsigned s = 0; while ((1ull << s) < d) ++s; return {d, (unsigned)(((1ull << 32) * ((1ull << s) - d)) / d + 1), s}; }
__global__ void permute_long(const float* __restrict__ in, float* __restrict__ out, long long n, long long heads, long long length, long long width) {
  const long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x;
  if (i >= n) return;
  const long long w = i % width, h = i / width % heads, s = i / (width * heads) % length, b = i / (width * heads * length);
  out[i] = in[((b * heads + h) * length + s) * width + w];
}
__device__ __forceinline__ unsigned quotient(unsigned i, Divider d) { return (__umulhi(i, d.factor) + i) >> d.shift; }
__global__ void permute_short(const float* __restrict__ in, float* __restrict__ out, unsigned n, Divider heads, Divider length, Divider width) {
  const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned a = quotient(i, width), w = i - a * width.d, c = quotient(a, heads), h = a - c * heads.d, b = quotient(c, length), s = c - b * length.d;
  out[i] = in[((b * heads.d + h) * length.d + s) * width.d + w];
}
CASE(permute_heads) {
  const int batch = pick(40, 2), heads = 12, length = pick(361, 9), width = 96; const size_t n = (size_t)batch * heads * length * width;
  auto x = random_floats(n); auto in = on_device(x), out = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(permute_long, over(n, 256), 256, 0, in->data, out->data, (long long)n, (long long)heads, (long long)length, (long long)width);
                          else LAUNCH(permute_short, over(n, 256), 256, 0, in->data, out->data, (unsigned)n, divider(heads), divider(length), divider(width)); },
          [=] { out->clear(); },
          [=](int) { auto o = out->host(); return sampled(n, 5000, [&](Largest& l, size_t i) { size_t w = i % width, h = i / width % heads, s = i / width / heads % length, b = i / width / heads / length; l.add(o[i], x[((b * heads + h) * length + s) * width + w]); }); }};
}

template <bool REDUCED> __device__ __forceinline__ float tone(float x) {
  if (!REDUCED) return sinf(x);
  const float turns = rintf(x * 0.15915494f);
  return sinf(fmaf(-turns, -1.7484555e-7f, fmaf(-turns, 6.2831855f, x)));
}
template <bool REDUCED> __global__ void synthesise(const float* __restrict__ time, float* __restrict__ out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float t = time[i];
  out[i] = tone<REDUCED>(t * 440.0f) + 0.5f * tone<REDUCED>(t * 660.0f) + 0.25f * tone<REDUCED>(t * 990.0f);
}
CASE(tone_phase) {
  const int n = pick(1 << 22, 1 << 10); auto t = random_floats(n, 400, 900); auto in = on_device(t), out = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(synthesise<false>, over(n, 256), 256, 0, in->data, out->data, n); else LAUNCH(synthesise<true>, over(n, 256), 256, 0, in->data, out->data, n); },
          [=] { out->clear(); },
          [=](int) { auto h = out->host(); return sampled(n, 1000, [&](Largest& l, size_t i) { l.add(h[i], sin((double)(t[i] * 440.0f)) + 0.5 * sin((double)(t[i] * 660.0f)) + 0.25 * sin((double)(t[i] * 990.0f))); }); }};
}

__constant__ float palette[256];
template <bool SHARED> __global__ void apply_palette(const unsigned* __restrict__ pixels, const float* __restrict__ table, float* __restrict__ out, int n) {
  __shared__ float copy[256];
  if (SHARED) { copy[threadIdx.x] = table[threadIdx.x]; __syncthreads(); }
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const unsigned p = pixels[i];
    if (SHARED) out[i] = copy[p & 255] + 2.0f * copy[p >> 8 & 255] + 3.0f * copy[p >> 16 & 255] + 4.0f * copy[p >> 24];
    else out[i] = palette[p & 255] + 2.0f * palette[p >> 8 & 255] + 3.0f * palette[p >> 16 & 255] + 4.0f * palette[p >> 24];
  }
}
CASE(palette_lookup) {
  const int n = pick(1 << 23, 1 << 12), blocks = multiprocessors() * 8; auto table = random_floats(256); vector<unsigned> pixels(n); uint64_t s = 12; for (auto& p : pixels) p = next_random(s) ^ next_random(s) << 13;
  TO_SYMBOL(palette, table);
  auto dp = on_device(pixels); auto dt = on_device(table), out = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(apply_palette<false>, blocks, 256, 0, dp->data, dt->data, out->data, n); else LAUNCH(apply_palette<true>, blocks, 256, 0, dp->data, dt->data, out->data, n); },
          [=] { out->clear(); },
          [=](int) { auto h = out->host(); return sampled(n, 1000, [&](Largest& l, size_t i) { unsigned p = pixels[i]; l.add(h[i], table[p & 255] + 2.0 * table[p >> 8 & 255] + 3.0 * table[p >> 16 & 255] + 4.0 * table[p >> 24]); }); }};
}

__constant__ float taps[64];
template <int UNROLL> __global__ void fir(const float* __restrict__ x, float* __restrict__ y, int n, int length) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  float sum = 0;
#pragma unroll UNROLL
  for (int k = 0; k < length; ++k) sum = fmaf(taps[k], x[i + k], sum);
  y[i] = sum;
}
CASE(fir_taps) {
  const int n = pick(1 << 23, 1 << 11); auto h = random_floats(64), x = random_floats(n + 64, -1, 1, 3); TO_SYMBOL(taps, h);
  auto dx = on_device(x), y = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(fir<1>, over(n, 256), 256, 0, dx->data, y->data, n, 64); else LAUNCH(fir<32>, over(n, 256), 256, 0, dx->data, y->data, n, 64); },
          [=] { y->clear(); },
          [=](int) { auto o = y->host(); return sampled(n, 500, [&](Largest& l, size_t i) { double sum = 0; for (int k = 0; k < 64; ++k) sum += (double)h[k] * x[i + k]; l.add(o[i], sum); }); }};
}

__host__ __device__ constexpr float turn(int program, int k) { return 1e-3f + 1e-6f * (float)(program * 613 + k * 17 % 1021); }
template <int P> __device__
#ifndef ON_CPU
__noinline__
#endif
float run_program(float a) {
  float b = 1.0f;
#pragma unroll
  for (int k = 0; k < 1024; ++k) { a = fmaf(b, turn(P, k), a); b = fmaf(a, -turn(P, k), b); }
  return a;
}
template <int LOW, int HIGH> __device__ __forceinline__ float dispatch(int program, float x) {
  if constexpr (HIGH - LOW == 1) return run_program<LOW>(x);
  else { constexpr int middle = (LOW + HIGH) / 2; return program < middle ? dispatch<LOW, middle>(program, x) : dispatch<middle, HIGH>(program, x); }
}
__global__ void evaluate(const int* __restrict__ program, const float* __restrict__ x, float* __restrict__ y) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x, p = program[i / 32];
  y[i] = dispatch<0, 16>(p, x[i]);
}
CASE(expression_order) {
  const int warps = pick(1 << 16, 64); vector<int> mixed(warps), sorted(warps); for (int w = 0; w < warps; ++w) { mixed[w] = w * 5 % 16; sorted[w] = (int)((size_t)w * 16 / warps); }
  auto x = random_floats((size_t)warps * 32, 0, 1); auto m = on_device(mixed), s = on_device(sorted); auto dx = on_device(x), y = empty<float>(x.size());
  return {[=](int side) { LAUNCH(evaluate, warps / 8, 256, 0, side ? s->data : m->data, dx->data, y->data); }, [=] { y->clear(); },
          [=](int side) { auto h = y->host(); return sampled(h.size(), 300, [&](Largest& l, size_t i) { int p = (side ? sorted : mixed)[i / 32]; double a = x[i]; { double b = 1; for (int k = 0; k < 1024; ++k) { a += b * (double)turn(p, k); b -= a * (double)turn(p, k); } } l.add(h[i], a); }); }};
}

struct Generator { unsigned a, b, c, d; };
__device__ __forceinline__ unsigned draw(Generator* g) {
  unsigned t = g->d; const unsigned s = g->a;
  g->d = g->c; g->c = g->b; g->b = s;
  t ^= t << 11; t ^= t >> 8;
  return g->a = t ^ s ^ (s >> 19);
}
__global__ void fill_through_pointer(Generator* generators, unsigned* out, int n, int draws) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  for (int k = 0; k < draws; ++k) out[(size_t)k * n + i] = draw(&generators[i]);
}
__global__ void fill_through_copy(Generator* generators, unsigned* out, int n, int draws) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  Generator mine = generators[i];
  for (int k = 0; k < draws; ++k) out[(size_t)k * n + i] = draw(&mine);
  generators[i] = mine;
}
CASE(random_state) {
  const int n = pick(1 << 18, 1 << 10), draws = 48; vector<Generator> start(n); uint64_t s = 31; for (auto& g : start) g = {next_random(s), next_random(s), next_random(s), next_random(s) | 1};
  auto g = on_device(start); auto out = empty<unsigned>((size_t)n * draws);
  return {[=](int side) { if (side == 0) LAUNCH(fill_through_pointer, over(n, 256), 256, 0, g->data, out->data, n, draws); else LAUNCH(fill_through_copy, over(n, 256), 256, 0, g->data, out->data, n, draws); },
          [=] { g->upload(start); },
          [=](int) { auto h = out->host(); bool same = true; for (int i = 0; i < n; i += 61) { Generator m = start[i]; for (int k = 0; k < draws; ++k) { unsigned t = m.d; m.d = m.c; m.c = m.b; m.b = m.a; t ^= t << 11; t ^= t >> 8; m.a = t ^ m.b ^ (m.b >> 19); same = same && h[(size_t)k * n + i] == m.a; } } return exact(same); }};
}
