// Pairs whose change has no effect.
#include "harness.h"
using std::vector;

__global__ void advect_field(const float* __restrict__ field, const float* __restrict__ u, const float* __restrict__ v, float* __restrict__ out, int width, int height, float dt) {
  const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  if (x >= width || y >= height) return;
  const size_t at = (size_t)y * width + x;
  const float px = fminf(fmaxf(x - dt * u[at], 0.0f), width - 1.001f), py = fminf(fmaxf(y - dt * v[at], 0.0f), height - 1.001f);
  const int ix = (int)px, iy = (int)py; const float fx = px - ix, fy = py - iy; const float* corner = field + (size_t)iy * width + ix;
  out[at] = (1 - fy) * ((1 - fx) * corner[0] + fx * corner[1]) + fy * ((1 - fx) * corner[width] + fx * corner[width + 1]);
}
__global__ void semi_lagrange_v2(const float* __restrict__ source, const float* __restrict__ speed_x, const float* __restrict__ speed_y, float* __restrict__ target, int columns, int rows, float step) {
  const int column = blockIdx.x * blockDim.x + threadIdx.x, row = blockIdx.y * blockDim.y + threadIdx.y;
  if (column >= columns || row >= rows) return;
  const size_t here = (size_t)row * columns + column;
  const float back_x = fminf(fmaxf(column - step * speed_x[here], 0.0f), columns - 1.001f), back_y = fminf(fmaxf(row - step * speed_y[here], 0.0f), rows - 1.001f);
  const int left = (int)back_x, top = (int)back_y; const float wx = back_x - left, wy = back_y - top; const float* cell = source + (size_t)top * columns + left;
  target[here] = (1 - wy) * ((1 - wx) * cell[0] + wx * cell[1]) + wy * ((1 - wx) * cell[columns] + wx * cell[columns + 1]);
}
CASE(advect_names) {
  const int w = pick(4096, 64), h = pick(2048, 32); const size_t n = (size_t)w * h; auto f = random_floats(n), u = random_floats(n, -3, 3, 2), v = random_floats(n, -3, 3, 3); auto df = on_device(f), du = on_device(u), dv = on_device(v), out = empty<float>(n);
  return {[=](int side) { dim3 grid(w / 32, h / 8), block(32, 8); if (side == 0) LAUNCH(advect_field, grid, block, 0, df->data, du->data, dv->data, out->data, w, h, 0.9f); else LAUNCH(semi_lagrange_v2, grid, block, 0, df->data, du->data, dv->data, out->data, w, h, 0.9f); },
          [=] { out->clear(); },
          [=](int) { auto o = out->host(); return sampled(n, 1000, [&](Largest& l, size_t i) { float px = fminf(fmaxf((int)(i % w) - 0.9f * u[i], 0.0f), w - 1.001f), py = fminf(fmaxf((int)(i / w) - 0.9f * v[i], 0.0f), h - 1.001f); int ix = px, iy = py; double fx = px - ix, fy = py - iy; const float* c = &f[(size_t)iy * w + ix]; l.add(o[i], (1 - fy) * ((1 - fx) * c[0] + fx * c[1]) + fy * ((1 - fx) * c[w] + fx * c[w + 1])); }); }};
}

template <int VERSION> __global__ void row_norms(const float* __restrict__ x, float* __restrict__ norm, int columns) {
  __shared__ float part[8]; float sum = 0;
  for (int c = threadIdx.x; c < columns; c += 256) { const float v = x[(size_t)blockIdx.x * columns + c]; sum = fmaf(v, v, sum); }
  for (int m = 16; m > 0; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) { float all = 0; for (int k = 0; k < 8; ++k) all += part[k]; norm[blockIdx.x] = sqrtf(all); }
}
CASE(norms_version) {
  const int rows = pick(8192, 16), columns = 3000; auto x = random_floats((size_t)rows * columns); auto dx = on_device(x), norm = empty<float>(rows);
  return {[=](int side) { if (side == 0) LAUNCH(row_norms<1>, rows, 256, 0, dx->data, norm->data, columns); else LAUNCH(row_norms<2>, rows, 256, 0, dx->data, norm->data, columns); }, [=] { norm->clear(); },
          [=](int) { auto h = norm->host(); return sampled(rows, 50, [&](Largest& l, size_t r) { double sum = 0; for (int c = 0; c < columns; ++c) sum += (double)x[r * columns + c] * x[r * columns + c]; l.add(h[r], sqrt(sum)); }); }};
}

__global__ void colours_first(const float* __restrict__ r, const float* __restrict__ g, const float* __restrict__ b, float* __restrict__ y, float* __restrict__ u, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float red = r[i], green = g[i], blue = b[i];
  const float luma = 0.299f * red + 0.587f * green + 0.114f * blue;
  const float chroma = 0.492f * (blue - luma);
  y[i] = luma;
  u[i] = chroma;
}
__global__ void colours_second(const float* __restrict__ r, const float* __restrict__ g, const float* __restrict__ b, float* __restrict__ y, float* __restrict__ u, int n) {
  const int i = threadIdx.x + blockDim.x * blockIdx.x;
  if (!(i < n)) return;
  const float blue = b[i], green = g[i], red = r[i];
  const float luma = red * 0.299f + green * 0.587f + blue * 0.114f;
  u[i] = (blue - luma) * 0.492f;
  y[i] = luma;
}
CASE(colour_statements) {
  const int n = pick(1 << 22, 1 << 11); auto r = random_floats(n, 0, 1), g = random_floats(n, 0, 1, 2), b = random_floats(n, 0, 1, 3); auto dr = on_device(r), dg = on_device(g), db = on_device(b), y = empty<float>(n), u = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(colours_first, over(n, 256), 256, 0, dr->data, dg->data, db->data, y->data, u->data, n); else LAUNCH(colours_second, over(n, 256), 256, 0, dr->data, dg->data, db->data, y->data, u->data, n); },
          [=] { y->clear(); u->clear(); },
          [=](int) { auto a = y->host(), c = u->host(); return sampled(n, 500, [&](Largest& l, size_t i) { double luma = 0.299 * r[i] + 0.587 * g[i] + 0.114 * b[i]; l.add(a[i], luma); l.add(c[i], 0.492 * (b[i] - luma)); }); }};
}

__device__ __forceinline__ float iterate(float x, int steps) { for (int k = 0; k < steps; ++k) x = fmaf(x, -0.5f * x, 1.0f); return x; }
__global__ void map_plain(const float* __restrict__ x, float* __restrict__ y, int n, int steps) { const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = iterate(x[i], steps); }
__global__ void __cluster_dims__(1, 1, 1) map_clustered(const float* __restrict__ x, float* __restrict__ y, int n, int steps) { const int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) y[i] = iterate(x[i], steps); }
CASE(map_cluster) {
  const int n = pick(1 << 22, 1 << 10), steps = 128; auto x = random_floats(n, 0, 1); auto dx = on_device(x), y = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(map_plain, over(n, 256), 256, 0, dx->data, y->data, n, steps); else LAUNCH(map_clustered, over(n, 256), 256, 0, dx->data, y->data, n, steps); }, [=] { y->clear(); },
          [=](int) { auto h = y->host(); return sampled(n, 300, [&](Largest& l, size_t i) { double v = x[i]; for (int k = 0; k < steps; ++k) v = 1 - 0.5 * v * v; l.add(h[i], v); }); }};
}

__global__ void rotary(const float2* __restrict__ in, const float2* __restrict__ angle, float2* __restrict__ out, int n, int half) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const float2 v = in[i], a = angle[i & (half - 1)];
  out[i] = make_float2(v.x * a.x - v.y * a.y, v.x * a.y + v.y * a.x);
}
CASE(rotary_request) {
  const int n = pick(1 << 22, 1 << 11), half = 1 << 10; auto x = random_floats((size_t)2 * n), a = random_floats(2 * half, -1, 1, 4); auto dx = on_device(x), da = on_device(a), out = empty<float>((size_t)2 * n);
  return {[=](int side) { LAUNCH(rotary, over(n, 256), 256, side ? 0 : 3072, (const float2*)dx->data, (const float2*)da->data, (float2*)out->data, n, half); }, [=] { out->clear(); },
          [=](int) { auto h = out->host(); return sampled(n, 500, [&](Largest& l, size_t i) { const size_t k = i % half; l.add(h[2 * i], (double)x[2 * i] * a[2 * k] - (double)x[2 * i + 1] * a[2 * k + 1]); l.add(h[2 * i + 1], (double)x[2 * i] * a[2 * k + 1] + (double)x[2 * i + 1] * a[2 * k]); }); }};
}
