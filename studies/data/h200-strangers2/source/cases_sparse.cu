// Sparse formats, tables, graphs and counting.
#include "harness.h"
using std::vector;

template <bool ROWS> __global__ void ell_multiply(const int* __restrict__ column, const float* __restrict__ value, const float* __restrict__ x, float* __restrict__ y, int n, int width) {
  const int r = blockIdx.x * blockDim.x + threadIdx.x;
  if (r >= n) return;
  float sum = 0;
  for (int k = 0; k < width; ++k) {
    const size_t at = ROWS ? (size_t)r * width + k : (size_t)k * n + r;
    sum += value[at] * x[column[at]];
  }
  y[r] = sum;
}
CASE(ell_layout) {
  const int n = pick(1 << 19, 1 << 10), width = 16;
  auto value = random_floats((size_t)n * width); auto x = random_floats(n, 0, 1, 7);
  vector<int> column((size_t)n * width), column_t(column.size()); vector<float> value_t(value.size());
  uint64_t s = 5;
  for (int r = 0; r < n; ++r) for (int k = 0; k < width; ++k) {
    const size_t a = (size_t)r * width + k, b = (size_t)k * n + r;
    column[a] = column_t[b] = (r + (int)(next_random(s) & 255)) % n; value_t[b] = value[a];
  }
  auto c0 = on_device(column), c1 = on_device(column_t); auto v0 = on_device(value), v1 = on_device(value_t), dx = on_device(x), y = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(ell_multiply<true>, over(n, 256), 256, 0, c0->data, v0->data, dx->data, y->data, n, width);
                          else LAUNCH(ell_multiply<false>, over(n, 256), 256, 0, c1->data, v1->data, dx->data, y->data, n, width); },
          [=] { y->clear(); },
          [=](int) { auto h = y->host(); return sampled(n, 500, [&](Largest& l, size_t r) { double sum = 0; for (int k = 0; k < width; ++k) sum += (double)value[r * width + k] * x[column[r * width + k]]; l.add(h[r], sum); }); }};
}

__global__ void join_probe(const unsigned* __restrict__ wanted, const int2* __restrict__ table, int* __restrict__ found, int n, int bits) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  const unsigned key = wanted[i], mask = (1u << bits) - 1;
  unsigned slot = key * 2654435761u >> (32 - bits);
  int payload = -1;
  for (;;) {
    const int2 entry = table[slot];
    if ((unsigned)entry.x == key) { payload = entry.y; break; }
    if (entry.x == 0) break;
    slot = (slot + 1) & mask;
  }
  found[i] = payload;
}
CASE(join_table) {
  const int bits = pick(20, 10), keys = (int)((1 << bits) * 0.94), n = pick(1 << 22, 1 << 11);
  uint64_t s = 11; vector<unsigned> key(keys);
  for (int i = 0; i < keys; ++i) key[i] = (unsigned)(i + 1) * 747796405u;  // odd factor: all different, none zero
  auto build = [&](int b) {
    vector<int2> t((size_t)1 << b, make_int2(0, 0));
    for (unsigned k : key) { unsigned at = (k ^ 0u) * 2654435761u >> (32 - b); while (t[at].x) at = (at + 1) & ((1u << b) - 1); t[at] = make_int2((int)k, (int)(k >> 3)); }
    return t;
  };
  for (auto& k : key) { k ^= k >> 15; k *= 0x2c1b3c6du; k ^= k >> 12; if (!k) k = 1; }  // bijective mixing
  vector<unsigned> wanted(n); for (auto& w : wanted) w = key[next_random(s) % keys];
  auto full = on_device(build(bits)), roomy = on_device(build(bits + 2)); auto dw = on_device(wanted); auto found = empty<int>(n);
  return {[=](int side) { LAUNCH(join_probe, over(n, 256), 256, 0, dw->data, side ? roomy->data : full->data, found->data, n, side ? bits + 2 : bits); },
          [=] { found->clear(); },
          [=](int) { auto h = found->host(); bool same = true; for (int i = 0; i < n; ++i) same = same && h[i] == (int)(wanted[i] >> 3); return exact(same); }};
}

const int tile = 4096;
template <bool STAGED> __global__ void radix_scatter(const unsigned* __restrict__ keys, const unsigned* __restrict__ base, const unsigned* __restrict__ local, unsigned* __restrict__ sorted) {
  __shared__ unsigned next[256], shift[256], staged[STAGED ? tile : 1];
  const int t = threadIdx.x; const size_t first = (size_t)blockIdx.x * tile;
  const unsigned to = base[blockIdx.x * 256 + t], from = local[blockIdx.x * 256 + t];
  next[t] = STAGED ? from : to; shift[t] = to - from;
  __syncthreads();
  for (int i = t; i < tile; i += 256) {
    const unsigned key = keys[first + i], at = atomicAdd(&next[key & 255], 1u);
    if (STAGED) staged[at] = key; else sorted[at] = key;
  }
  if (STAGED) {
    __syncthreads();
    for (int i = t; i < tile; i += 256) { const unsigned key = staged[i]; sorted[shift[key & 255] + i] = key; }
  }
}
CASE(radix_step) {
  const int blocks = pick(4096, 4); const size_t n = (size_t)blocks * tile;
  vector<unsigned> keys(n); uint64_t s = 3; uint64_t sum = 0; for (auto& k : keys) { k = next_random(s); sum += k; }
  vector<unsigned> count(blocks * 256), base(blocks * 256), local(blocks * 256);
  for (size_t i = 0; i < n; ++i) ++count[i / tile * 256 + (keys[i] & 255)];
  unsigned at = 0; for (int d = 0; d < 256; ++d) for (int b = 0; b < blocks; ++b) { base[b * 256 + d] = at; at += count[b * 256 + d]; }
  for (int b = 0; b < blocks; ++b) { unsigned l = 0; for (int d = 0; d < 256; ++d) { local[b * 256 + d] = l; l += count[b * 256 + d]; } }
  auto dk = on_device(keys), db = on_device(base), dl = on_device(local), out = empty<unsigned>(n);
  return {[=](int side) { if (side == 0) LAUNCH(radix_scatter<false>, blocks, 256, 0, dk->data, db->data, dl->data, out->data);
                          else LAUNCH(radix_scatter<true>, blocks, 256, 0, dk->data, db->data, dl->data, out->data); },
          [=] { out->clear(); },
          [=](int) { auto h = out->host(); uint64_t found = 0; bool ordered = true; for (size_t i = 0; i < n; ++i) { found += h[i]; if (i) ordered = ordered && (h[i] & 255) >= (h[i - 1] & 255); } return exact(ordered && found == sum); }};
}

__global__ void expand_each(const int* __restrict__ degree, int* __restrict__ frontier, int* total, int n) {
  const int v = blockIdx.x * blockDim.x + threadIdx.x;
  if (v >= n) return;
  const int d = degree[v], at = atomicAdd(total, d);
  for (int j = 0; j < d; ++j) frontier[at + j] = v;
}
__global__ void expand_block(const int* __restrict__ degree, int* __restrict__ frontier, int* total, int n) {
  __shared__ int sums[8], start;
  const int v = blockIdx.x * 256 + threadIdx.x, lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int d = v < n ? degree[v] : 0;
  int upto = d;
  for (int m = 1; m < 32; m *= 2) { const int other = __shfl_up_sync(~0u, upto, m); if (lane >= m) upto += other; }
  if (lane == 31) sums[warp] = upto;
  __syncthreads();
  if (threadIdx.x == 0) { int all = 0; for (int w = 0; w < 8; ++w) { const int one = sums[w]; sums[w] = all; all += one; } start = atomicAdd(total, all); }
  __syncthreads();
  const int at = start + sums[warp] + upto - d;
  for (int j = 0; j < d; ++j) frontier[at + j] = v;
}
CASE(frontier_slots) {
  const int n = pick(1 << 20, 1 << 11); vector<int> degree(n); uint64_t s = 8; size_t all = 0;
  for (auto& d : degree) { d = next_random(s) >> 7 & 7; all += d; }
  auto dd = on_device(degree); auto frontier = empty<int>(all), total = empty<int>(1);
  return {[=](int side) { if (side == 0) LAUNCH(expand_each, over(n, 256), 256, 0, dd->data, frontier->data, total->data, n);
                          else LAUNCH(expand_block, over(n, 256), 256, 0, dd->data, frontier->data, total->data, n); },
          [=] { frontier->clear(); total->clear(); },
          [=](int) { auto h = frontier->host(); vector<int> left = degree; bool same = (size_t)total->host()[0] == all; for (int v : h) --left[v]; for (int l : left) same = same && l == 0; return exact(same); }};
}

template <int LANES> __global__ void csr_rows(const int* __restrict__ start, const int* __restrict__ column, const float* __restrict__ value, const float* __restrict__ x, float* __restrict__ y, int n) {
  const int r = (blockIdx.x * blockDim.x + threadIdx.x) / LANES, lane = threadIdx.x % LANES;
  if (r >= n) return;
  float sum = 0;
  for (int k = start[r] + lane; k < start[r + 1]; k += LANES) sum += value[k] * x[column[k]];
  for (int m = LANES / 2; m > 0; m /= 2) sum += __shfl_xor_sync(~0u, sum, m);
  if (lane == 0) y[r] = sum;
}
CASE(csr_lanes) {
  const int n = pick(1 << 20, 1 << 9); vector<int> start(n + 1); uint64_t s = 21;
  for (int r = 0; r < n; ++r) start[r + 1] = start[r] + 5 + (int)(next_random(s) >> 5) % 4;
  vector<int> column(start[n]); for (int r = 0; r < n; ++r) for (int k = start[r]; k < start[r + 1]; ++k) column[k] = (r + (int)(next_random(s) & 1023)) % n;
  auto value = random_floats(column.size()); auto x = random_floats(n, 0, 1, 5);
  auto ds = on_device(start), dc = on_device(column); auto dv = on_device(value), dx = on_device(x), y = empty<float>(n);
  return {[=](int side) { if (side == 0) LAUNCH(csr_rows<32>, over((size_t)n * 32, 256), 256, 0, ds->data, dc->data, dv->data, dx->data, y->data, n);
                          else LAUNCH(csr_rows<8>, over((size_t)n * 8, 256), 256, 0, ds->data, dc->data, dv->data, dx->data, y->data, n); },
          [=] { y->clear(); },
          [=](int) { auto h = y->host(); return sampled(n, 500, [&](Largest& l, size_t r) { double sum = 0; for (int k = start[r]; k < start[r + 1]; ++k) sum += (double)value[k] * x[column[k]]; l.add(h[r], sum); }); }};
}

__global__ void lines_bytes(const unsigned char* __restrict__ text, int* lines, size_t n) {
  int mine = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += (size_t)gridDim.x * blockDim.x) mine += text[i] == '\n';
  for (int m = 16; m > 0; m /= 2) mine += __shfl_xor_sync(~0u, mine, m);
  if (threadIdx.x % 32 == 0) atomicAdd(lines, mine);
}
__global__ void lines_words(const unsigned char* __restrict__ text, int* lines, size_t n) {
  const uint4* words = reinterpret_cast<const uint4*>(text); int mine = 0;
  for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n / 16; i += (size_t)gridDim.x * blockDim.x) {
    const uint4 w = words[i]; const unsigned end = 0x0a0a0a0au;
    mine += __popc(__vcmpeq4(w.x, end)) + __popc(__vcmpeq4(w.y, end)) + __popc(__vcmpeq4(w.z, end)) + __popc(__vcmpeq4(w.w, end));
  }
  mine /= 8;
  for (int m = 16; m > 0; m /= 2) mine += __shfl_xor_sync(~0u, mine, m);
  if (threadIdx.x % 32 == 0) atomicAdd(lines, mine);
}
CASE(line_count) {
  const size_t n = pick(1 << 26, 1 << 14); vector<unsigned char> text(n); uint64_t s = 4; int expected = 0;
  const size_t head = n < (1 << 20) ? n : (1 << 20); int lines_in_head = 0;
  for (size_t i = 0; i < head; ++i) { text[i] = 10 + (next_random(s) >> 4) % 60; lines_in_head += text[i] == 10; }
  for (size_t i = head; i < n; i += head) memcpy(&text[i], &text[0], head);
  expected = lines_in_head * (int)(n / head);
  auto dt = on_device(text); auto lines = empty<int>(1); const int blocks = multiprocessors() * 8;
  return {[=](int side) { if (side == 0) LAUNCH(lines_bytes, blocks, 256, 0, dt->data, lines->data, n); else LAUNCH(lines_words, blocks, 256, 0, dt->data, lines->data, n); },
          [=] { lines->clear(); }, [=](int) { return exact(lines->host()[0] == expected); }};
}

template <bool PRIVATE> __global__ void centroid_sums(const int* __restrict__ points, const int* __restrict__ label, int* sums, int n) {
  __shared__ int mine[128];
  if (PRIVATE) { if (threadIdx.x < 128) mine[threadIdx.x] = 0; __syncthreads(); }
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    const int c = label[i];
    for (int d = 0; d < 8; ++d) atomicAdd(PRIVATE ? &mine[c * 8 + d] : &sums[c * 8 + d], points[(size_t)d * n + i]);
  }
  if (PRIVATE) { __syncthreads(); if (threadIdx.x < 128) atomicAdd(&sums[threadIdx.x], mine[threadIdx.x]); }
}
CASE(kmeans_update) {
  const int n = pick(1 << 20, 1 << 12); vector<int> points((size_t)8 * n), label(n), expected(128); uint64_t s = 6;
  for (auto& p : points) p = next_random(s) >> 9 & 255;
  for (auto& l : label) l = next_random(s) >> 9 & 15;
  for (int d = 0; d < 8; ++d) for (int i = 0; i < n; ++i) expected[label[i] * 8 + d] += points[(size_t)d * n + i];
  auto dp = on_device(points), dl = on_device(label), sums = empty<int>(128); const int blocks = multiprocessors() * 2;
  return {[=](int side) { if (side == 0) LAUNCH(centroid_sums<false>, blocks, 512, 0, dp->data, dl->data, sums->data, n); else LAUNCH(centroid_sums<true>, blocks, 512, 0, dp->data, dl->data, sums->data, n); },
          [=] { sums->clear(); }, [=](int) { return exact(sums->host() == expected); }};
}

__global__ void depth_swap(const int* __restrict__ pixel, const float* __restrict__ depth, int* nearest, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= n) return;
  int* at = nearest + pixel[i]; const float mine = depth[i];
  int seen = *at, expected;
  do { expected = seen; seen = atomicCAS(at, expected, __float_as_int(fmaxf(mine, __int_as_float(expected)))); } while (seen != expected);
}
__global__ void depth_max(const int* __restrict__ pixel, const float* __restrict__ depth, int* nearest, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) atomicMax(nearest + pixel[i], __float_as_int(depth[i]));
}
CASE(depth_splat) {
  const int n = pick(1 << 21, 1 << 12), pixels = 1 << 12; vector<int> pixel(n), expected(pixels); uint64_t s = 14; auto depth = random_floats(n, 0, 1, 9);
  for (int i = 0; i < n; ++i) { pixel[i] = next_random(s) >> 5 & (pixels - 1); expected[pixel[i]] = std::max(expected[pixel[i]], (int)(depth[i] == 0 ? 0 : [&] { int b; memcpy(&b, &depth[i], 4); return b; }())); }
  auto dp = on_device(pixel), nearest = empty<int>(pixels); auto dd = on_device(depth);
  return {[=](int side) { if (side == 0) LAUNCH(depth_swap, over(n, 256), 256, 0, dp->data, dd->data, nearest->data, n); else LAUNCH(depth_max, over(n, 256), 256, 0, dp->data, dd->data, nearest->data, n); },
          [=] { nearest->clear(); }, [=](int) { return exact(nearest->host() == expected); }};
}
