// Attention in fp32, one row of Q a thread: a ladder of versions, each one step from the one before.
//
// O = softmax(Q K^T * scale) V for `batch` independent problems of n rows and HEAD_DIM columns, all
// row-major. Every version keeps a running maximum m and sum l of each row (online softmax), so that
// the scores of a whole row are never needed at once. n is a multiple of 128.
//
// -DHEAD_DIM=32 or 64.

namespace {

constexpr int kDim = HEAD_DIM;
constexpr int kVectors = kDim / 4;       // float4 in a row
constexpr int kRows = 128;               // rows of Q a block, one a thread
constexpr int kColumns = 1024 / kDim;    // rows of K and V a tile: with Q and S this fills 48 KiB at d = 64
constexpr int kLongColumns = 2048 / kDim;  // the same once Q has left shared memory

__device__ __forceinline__ float minus_infinity() { return __int_as_float(0xff800000); }

__device__ __forceinline__ float dot(float4 a, float4 b) {
  return a.x * b.x + a.y * b.y + a.z * b.z + a.w * b.w;
}

__device__ __forceinline__ void add_scaled(float4& sum, float factor, float4 value) {
  sum.x += factor * value.x;
  sum.y += factor * value.y;
  sum.z += factor * value.z;
  sum.w += factor * value.w;
}

// One row of Q against one tile of K and V, all in shared memory; m, l and O live in global memory.
template <int Columns>
__device__ void absorb_tile(const float* query, const float* keys, const float* values,
                            float* scores, float scale, float* m, float* l, float* out) {
  float tile_max = minus_infinity();
  for (int y = 0; y < Columns; ++y) {
    float sum = 0.0f;
    for (int x = 0; x < kDim; ++x) sum += query[x] * keys[y * kDim + x];
    scores[y] = sum * scale;
    tile_max = fmaxf(tile_max, scores[y]);
  }
  float tile_sum = 0.0f;
  for (int y = 0; y < Columns; ++y) {
    scores[y] = expf(scores[y] - tile_max);
    tile_sum += scores[y];
  }
  const float new_max = fmaxf(*m, tile_max);
  const float new_sum = expf(*m - new_max) * *l + expf(tile_max - new_max) * tile_sum;
  for (int x = 0; x < kDim; ++x) {
    float weighted = 0.0f;
    for (int y = 0; y < Columns; ++y) weighted += scores[y] * values[y * kDim + x];
    out[x] = (*l * expf(*m - new_max) * out[x] + expf(tile_max - new_max) * weighted) / new_sum;
  }
  *m = new_max;
  *l = new_sum;
}

__device__ __forceinline__ void clear_row(float* m, float* l, float* out) {
  *m = minus_infinity();
  *l = 0.0f;
  for (int x = 0; x < kDim; ++x) out[x] = 0.0f;
}

// All tiles of K and V outside, tiles of Q inside (OneTile false), or one tile of Q a block (true).
template <int Rows, int Columns, bool OneTile>
__device__ void fused(const float* q, const float* k, const float* v, float* o, float* m, float* l,
                      int n, float scale) {
  extern __shared__ float4 arena[];
  float* query = reinterpret_cast<float*>(arena);
  float* keys = query + Rows * kDim;
  float* values = keys + Columns * kDim;
  float* scores = values + Columns * kDim;
  const int thread = threadIdx.x;
  const size_t rows_before = static_cast<size_t>(blockIdx.x) * n;
  const size_t base = rows_before * kDim;
  const int first = OneTile ? blockIdx.y * Rows : 0;
  const int last = OneTile ? first + Rows : n;

  for (int row = first + thread; row < last; row += Rows) {
    clear_row(m + rows_before + row, l + rows_before + row, o + base + size_t(row) * kDim);
  }
  for (int tile = 0; tile < n; tile += Columns) {
    for (int row = thread; row < Columns; row += Rows) {
      for (int x = 0; x < kDim; ++x) {
        keys[row * kDim + x] = k[base + size_t(tile + row) * kDim + x];
        values[row * kDim + x] = v[base + size_t(tile + row) * kDim + x];
      }
    }
    __syncthreads();
    for (int row = first + thread; row < last; row += Rows) {
      for (int x = 0; x < kDim; ++x) query[thread * kDim + x] = q[base + size_t(row) * kDim + x];
      absorb_tile<Columns>(query + thread * kDim, keys, values, scores + thread * Columns, scale,
                           m + rows_before + row, l + rows_before + row,
                           o + base + size_t(row) * kDim);
    }
    __syncthreads();
  }
}

// float4 everywhere; the four flags are the next four steps of the ladder.
template <bool Hoisted, bool Coalesced, bool Registers, bool Columnar>
__device__ void vectorised(const float4* q, const float4* k, const float4* v, float* o, float* m,
                           float* l, int n, float scale) {
  extern __shared__ float4 arena[];
  float4* query = arena;
  float4* keys = query + kRows * kVectors;
  float4* values = keys + kColumns * kVectors;
  float* scores = reinterpret_cast<float*>(values + kColumns * kVectors);
  const int thread = threadIdx.x;
  const size_t row = static_cast<size_t>(blockIdx.x) * n + blockIdx.y * kRows + thread;
  const float4* q_tile = q + (row - thread) * kVectors;
  const float4* k_base = k + static_cast<size_t>(blockIdx.x) * n * kVectors;
  const float4* v_base = v + static_cast<size_t>(blockIdx.x) * n * kVectors;
  // Columnar: neighbouring threads use neighbouring words, so no two of a warp share a bank.
  auto q_at = [&](int x) { return Columnar ? x * kRows + thread : thread * kVectors + x; };
  auto s_at = [&](int y) { return Columnar ? y * kRows + thread : thread * kColumns + y; };
  auto load_query = [&]() {
    if constexpr (Coalesced && !Columnar) {
      for (int x = thread; x < kRows * kVectors; x += kRows) query[x] = q_tile[x];
    } else {
      for (int x = 0; x < kVectors; ++x) query[q_at(x)] = q_tile[thread * kVectors + x];
    }
  };
  float m_kept = minus_infinity(), l_kept = 0.0f;
  if constexpr (!Registers) {
    m[row] = m_kept;
    l[row] = l_kept;
  }
  for (int x = 0; x < kDim; ++x) o[row * kDim + x] = 0.0f;
  if constexpr (Hoisted) load_query();

  for (int tile = 0; tile < n; tile += kColumns) {
    const float4* k_tile = k_base + static_cast<size_t>(tile) * kVectors;
    const float4* v_tile = v_base + static_cast<size_t>(tile) * kVectors;
    if constexpr (Coalesced) {
      for (int x = thread; x < kColumns * kVectors; x += kRows) {
        keys[x] = k_tile[x];
        values[x] = v_tile[x];
      }
    } else if (thread < kColumns) {
      for (int x = 0; x < kVectors; ++x) {
        keys[thread * kVectors + x] = k_tile[thread * kVectors + x];
        values[thread * kVectors + x] = v_tile[thread * kVectors + x];
      }
    }
    if constexpr (!Hoisted) load_query();
    __syncthreads();

    float tile_max = minus_infinity();
    for (int y = 0; y < kColumns; ++y) {
      float sum = 0.0f;
      for (int x = 0; x < kVectors; ++x) sum += dot(query[q_at(x)], keys[y * kVectors + x]);
      sum *= scale;
      scores[s_at(y)] = sum;
      tile_max = fmaxf(tile_max, sum);
    }
    float tile_sum = 0.0f;
    for (int y = 0; y < kColumns; ++y) {
      const float p = Hoisted ? __expf(scores[s_at(y)] - tile_max) : expf(scores[s_at(y)] - tile_max);
      scores[s_at(y)] = p;
      tile_sum += p;
    }
    const float m_old = Registers ? m_kept : m[row];
    const float l_old = Registers ? l_kept : l[row];
    const float m_new = fmaxf(m_old, tile_max);
    if constexpr (Hoisted) {
      const float old_part = __expf(m_old - m_new) * l_old;
      const float new_part = __expf(tile_max - m_new);
      const float l_new = old_part + new_part * tile_sum;
      const float inverse = __fdividef(1.0f, l_new);
      const float old_scale = old_part * inverse, new_scale = new_part * inverse;
      for (int x = 0; x < kVectors; ++x) {
        float4 weighted = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int y = 0; y < kColumns; ++y) {
          add_scaled(weighted, scores[s_at(y)], values[y * kVectors + x]);
        }
        float* out = o + row * kDim + 4 * x;
        out[0] = old_scale * out[0] + new_scale * weighted.x;
        out[1] = old_scale * out[1] + new_scale * weighted.y;
        out[2] = old_scale * out[2] + new_scale * weighted.z;
        out[3] = old_scale * out[3] + new_scale * weighted.w;
      }
      m_kept = m_new;
      l_kept = l_new;
    } else {
      const float l_new = expf(m_old - m_new) * l_old + expf(tile_max - m_new) * tile_sum;
      for (int x = 0; x < kVectors; ++x) {
        float4 weighted = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int y = 0; y < kColumns; ++y) {
          add_scaled(weighted, scores[s_at(y)], values[y * kVectors + x]);
        }
        float* out = o + row * kDim + 4 * x;
        const float old_scale = l_old * expf(m_old - m_new) / l_new;
        const float new_scale = expf(tile_max - m_new) / l_new;
        out[0] = old_scale * out[0] + new_scale * weighted.x;
        out[1] = old_scale * out[1] + new_scale * weighted.y;
        out[2] = old_scale * out[2] + new_scale * weighted.z;
        out[3] = old_scale * out[3] + new_scale * weighted.w;
      }
      m_kept = m_new;
      l_kept = l_new;
    }
    if constexpr (!Registers) {
      m[row] = m_kept;
      l[row] = l_kept;
    }
    __syncthreads();
  }
}

// The row of Q in registers leaves room for twice the rows of K and V; then O follows (OutToo).
template <bool OutToo>
__device__ void query_in_registers(const float4* q, const float4* k, const float4* v, float4* o,
                                   int n, float scale) {
  extern __shared__ float4 arena[];
  float4* keys = arena;
  float4* values = keys + kLongColumns * kVectors;
  float* scores = reinterpret_cast<float*>(values + kLongColumns * kVectors);
  const int thread = threadIdx.x;
  const size_t row = static_cast<size_t>(blockIdx.x) * n + blockIdx.y * kRows + thread;
  const float4* k_base = k + static_cast<size_t>(blockIdx.x) * n * kVectors;
  const float4* v_base = v + static_cast<size_t>(blockIdx.x) * n * kVectors;
  float4 query[kVectors];
  float4 kept[OutToo ? kVectors : 1];
#pragma unroll
  for (int x = 0; x < kVectors; ++x) {
    query[x] = q[row * kVectors + x];
    if constexpr (OutToo) {
      kept[x] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    } else {
      o[row * kVectors + x] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    }
  }
  float m_kept = minus_infinity(), l_kept = 0.0f;

  for (int tile = 0; tile < n; tile += kLongColumns) {
    const float4* k_tile = k_base + static_cast<size_t>(tile) * kVectors;
    const float4* v_tile = v_base + static_cast<size_t>(tile) * kVectors;
    for (int x = thread; x < kLongColumns * kVectors; x += kRows) {
      keys[x] = k_tile[x];
      values[x] = v_tile[x];
    }
    __syncthreads();
    float tile_max = minus_infinity();
    for (int y = 0; y < kLongColumns; ++y) {
      float sum = 0.0f;
#pragma unroll
      for (int x = 0; x < kVectors; ++x) sum += dot(query[x], keys[y * kVectors + x]);
      sum *= scale;
      scores[y * kRows + thread] = sum;
      tile_max = fmaxf(tile_max, sum);
    }
    float tile_sum = 0.0f;
    for (int y = 0; y < kLongColumns; ++y) {
      const float p = __expf(scores[y * kRows + thread] - tile_max);
      scores[y * kRows + thread] = p;
      tile_sum += p;
    }
    const float m_new = fmaxf(m_kept, tile_max);
    const float old_part = __expf(m_kept - m_new);
    const float new_part = __expf(tile_max - m_new);
    if constexpr (OutToo) {
      // Not divided by l until the end: one product less a tile.
#pragma unroll
      for (int x = 0; x < kVectors; ++x) {
        float4 weighted = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        add_scaled(weighted, old_part, kept[x]);
        kept[x] = weighted;
      }
      for (int y = 0; y < kLongColumns; ++y) {
        const float p = scores[y * kRows + thread] * new_part;
#pragma unroll
        for (int x = 0; x < kVectors; ++x) add_scaled(kept[x], p, values[y * kVectors + x]);
      }
      l_kept = old_part * l_kept + new_part * tile_sum;
    } else {
      const float l_new = old_part * l_kept + new_part * tile_sum;
      const float inverse = __fdividef(1.0f, l_new);
      const float old_scale = old_part * l_kept * inverse, new_scale = new_part * inverse;
      for (int x = 0; x < kVectors; ++x) {
        float4 weighted = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (int y = 0; y < kLongColumns; ++y) {
          add_scaled(weighted, scores[y * kRows + thread], values[y * kVectors + x]);
        }
        float4 result = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        add_scaled(result, old_scale, o[row * kVectors + x]);
        add_scaled(result, new_scale, weighted);
        o[row * kVectors + x] = result;
      }
      l_kept = l_new;
    }
    m_kept = m_new;
    __syncthreads();
  }
  if constexpr (OutToo) {
    const float inverse = 1.0f / l_kept;
#pragma unroll
    for (int x = 0; x < kVectors; ++x) {
      float4 result = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      add_scaled(result, inverse, kept[x]);
      o[row * kVectors + x] = result;
    }
  }
}

}  // namespace

// --- separate kernels: five launches a panel of `width` columns of S, which lives in global memory.

extern "C" __global__ void __launch_bounds__(256)
separate_scores(const float* q, const float* k, float* s, int rows, int n, int first, int width,
                float scale) {
  const size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= static_cast<size_t>(rows) * width) return;
  const size_t row = at / width, column = at % width;
  const float* query = q + row * kDim;
  const float* key = k + (row / n * n + first + column) * kDim;
  float sum = 0.0f;
  for (int x = 0; x < kDim; ++x) sum += query[x] * key[x];
  s[at] = sum * scale;
}

extern "C" __global__ void __launch_bounds__(256)
separate_row_max(const float* s, float* tile_max, int rows, int width) {
  const size_t row = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float largest = minus_infinity();
  for (int y = 0; y < width; ++y) largest = fmaxf(largest, s[row * width + y]);
  tile_max[row] = largest;
}

extern "C" __global__ void __launch_bounds__(256)
separate_exp(float* s, const float* tile_max, int rows, int width) {
  const size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (at >= static_cast<size_t>(rows) * width) return;
  s[at] = expf(s[at] - tile_max[at / width]);
}

extern "C" __global__ void __launch_bounds__(256)
separate_row_sum(const float* s, float* tile_sum, int rows, int width) {
  const size_t row = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  float sum = 0.0f;
  for (int y = 0; y < width; ++y) sum += s[row * width + y];
  tile_sum[row] = sum;
}

extern "C" __global__ void __launch_bounds__(256)
separate_update(const float* s, const float* v, const float* tile_max, const float* tile_sum,
                float* o, float* m, float* l, int rows, int n, int first, int width) {
  // 256 is a multiple of HEAD_DIM, so the threads of one row are in one block.
  const size_t at = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  const size_t row = at / kDim, x = at % kDim;
  const bool inside = row < rows;
  float m_new = 0.0f, l_new = 0.0f;
  if (inside) {
    const float m_old = first == 0 ? minus_infinity() : m[row];
    const float l_old = first == 0 ? 0.0f : l[row];
    m_new = fmaxf(m_old, tile_max[row]);
    const float old_part = expf(m_old - m_new) * l_old;
    const float new_part = expf(tile_max[row] - m_new);
    l_new = old_part + new_part * tile_sum[row];
    float weighted = 0.0f;
    const float* value = v + (row / n * n + first) * kDim + x;
    for (int y = 0; y < width; ++y) weighted += s[row * width + y] * value[size_t(y) * kDim];
    const float before = first == 0 ? 0.0f : o[at];
    o[at] = (old_part * before + new_part * weighted) / l_new;
  }
  __syncthreads();
  if (inside && x == 0) {
    m[row] = m_new;
    l[row] = l_new;
  }
}

// --- one kernel: grid (batch) up to shared_48k, (batch, n / 128) from split_q on.

#define SCALAR const float *q, const float *k, const float *v, float *o, float *m, float *l, int n, float scale
#define VECTOR const float4 *q, const float4 *k, const float4 *v, float *o, float *m, float *l, int n, float scale

extern "C" __global__ void __launch_bounds__(32) fused_tiles(SCALAR) {
  fused<32, 32, false>(q, k, v, o, m, l, n, scale);
}

extern "C" __global__ void __launch_bounds__(kRows) shared_48k(SCALAR) {
  fused<kRows, kColumns, false>(q, k, v, o, m, l, n, scale);
}

extern "C" __global__ void __launch_bounds__(kRows) split_q(SCALAR) {
  fused<kRows, kColumns, true>(q, k, v, o, m, l, n, scale);
}

extern "C" __global__ void __launch_bounds__(kRows) vector_loads(VECTOR) {
  vectorised<false, false, false, false>(q, k, v, o, m, l, n, scale);
}

extern "C" __global__ void __launch_bounds__(kRows) restructured(VECTOR) {
  vectorised<true, false, false, false>(q, k, v, o, m, l, n, scale);
}

extern "C" __global__ void __launch_bounds__(kRows) coalesced(VECTOR) {
  vectorised<true, true, false, false>(q, k, v, o, m, l, n, scale);
}

extern "C" __global__ void __launch_bounds__(kRows) lm_registers(VECTOR) {
  vectorised<true, true, true, false>(q, k, v, o, m, l, n, scale);
}

extern "C" __global__ void __launch_bounds__(kRows) no_conflicts(VECTOR) {
  vectorised<true, true, true, true>(q, k, v, o, m, l, n, scale);
}

extern "C" __global__ void __launch_bounds__(kRows) q_registers(VECTOR) {
  query_in_registers<false>(q, k, v, reinterpret_cast<float4*>(o), n, scale);
}

extern "C" __global__ void __launch_bounds__(kRows) o_registers(VECTOR) {
  query_in_registers<true>(q, k, v, reinterpret_cast<float4*>(o), n, scale);
}
