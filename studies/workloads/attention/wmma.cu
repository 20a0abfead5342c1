// Attention in fp16 with fp32 sums on the tensor cores through CUDA C++'s nvcuda::wmma.
//
// A warp owns Q_ROWS rows of Q; the block's four warps share each tile of KV_ROWS rows of K and V,
// which cp.async brings one iteration ahead. Rows in shared memory are padded by PAD halves; with 8 the
// rows of a fragment start 4 banks apart, with 0 all of them in the same bank. Scores and output stay in the accumulators, whose elements
// belong to lanes as mma.m16n8k16 says: row lane / 4 (and + 8), columns 2 (lane % 4) and the next (and
// + 8). wmma leaves this open; it holds for sm_80 to sm_90, where the left operand's first eight
// elements have the same order (the compiler reads no others), and the check on the device shows it.
//
// -DHEAD_DIM=64|128 -DQ_ROWS=16|32|48|64 -DKV_ROWS=32|64|128|160 -DCAUSAL=0|1
// -DMIN_BLOCKS=0.. (0: as the compiler likes) -DPOLY=0..8 -DLAZY=0|8 -DPAD=0|8 -DTHROUGH_L1=0|1

#ifndef ATTENTION_ON_CPU
#include <mma.h>
#endif

#include "tensor.cuh"

#ifndef PAD
#define PAD 8
#endif

#if MIN_BLOCKS > 0
#define BOUNDS __launch_bounds__(kThreads, MIN_BLOCKS)
#else
#define BOUNDS __launch_bounds__(kThreads)
#endif

namespace {

namespace wmma = nvcuda::wmma;

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * 32;
constexpr int kPitch = HEAD_DIM + PAD;  // halves from row to row
constexpr int kBlocks = Q_ROWS / 16;
constexpr int kSteps = HEAD_DIM / 16;
constexpr int kColumns = KV_ROWS / 16;
constexpr int kQRows = kWarps * Q_ROWS;
constexpr int kTile = KV_ROWS * kPitch;

using Left = wmma::fragment<wmma::matrix_a, 16, 16, 16, half, wmma::row_major>;
using Keys = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::col_major>;
using Values = wmma::fragment<wmma::matrix_b, 16, 16, 16, half, wmma::row_major>;
using Sums = wmma::fragment<wmma::accumulator, 16, 16, 16, float>;

template <int Rows>
__device__ __forceinline__ void load_tile(half* to, const half* from, int first, int n) {
  constexpr int chunks = HEAD_DIM / 8;
  const int row = threadIdx.x / chunks, chunk = threadIdx.x % chunks;
  copy_rows<Rows, chunks, kThreads, kPitch * 2>(shared_address(to + row * kPitch + chunk * 8),
                                                reinterpret_cast<const Half*>(from), first, row,
                                                chunk, n);
}

// Element i of an accumulator: rows of the lower half of the block are i = 2, 3, 6, 7.
__device__ __forceinline__ constexpr int lower(int i) { return i / 2 % 2; }
__device__ __forceinline__ int column_of(int i, int lane) {
  return lane % 4 * 2 + i % 2 + i / 4 * 8;
}

}  // namespace

// q, k, v, o: [batch][n][HEAD_DIM]; grid (tiles of Q, batch); `factor` is scale * log2(e).
extern "C" __global__ void BOUNDS
attention_wmma(const half* q, const half* k, const half* v, half* o, int n, float factor) {
  extern __shared__ __align__(1024) unsigned char arena[];
  half* q_tile = reinterpret_cast<half*>(arena);
  half* k_tiles = q_tile + kQRows * kPitch;
  half* v_tiles = k_tiles + 2 * kTile;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int tile_of_q = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_row = tile_of_q * kQRows;
  const int warp_row = first_row + warp * Q_ROWS;
  const size_t base = static_cast<size_t>(blockIdx.y) * n * HEAD_DIM;
  const int end = CAUSAL ? min(n, first_row + kQRows) : n;
  const int tiles = (end + KV_ROWS - 1) / KV_ROWS;
  load_tile<kQRows>(q_tile, q + base, first_row, n);
  load_tile<KV_ROWS>(k_tiles, k + base, 0, n);
  load_tile<KV_ROWS>(v_tiles, v + base, 0, n);
  copies_commit();

  Sums out[kBlocks][kSteps];
  float row_max[kBlocks][2], row_sum[kBlocks][2];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) wmma::fill_fragment(out[block][step], 0.0f);
    row_max[block][0] = row_max[block][1] = minus_infinity();
    row_sum[block][0] = row_sum[block][1] = 0.0f;
  }

  for (int tile = 0; tile < tiles; ++tile) {
    const half* k_tile = k_tiles + tile % 2 * kTile;
    const half* v_tile = v_tiles + tile % 2 * kTile;
    copies_wait<0>();
    __syncthreads();
    if (tile + 1 < tiles) {
      const int next = (tile + 1) % 2 * kTile;
      load_tile<KV_ROWS>(k_tiles + next, k + base, (tile + 1) * KV_ROWS, n);
      load_tile<KV_ROWS>(v_tiles + next, v + base, (tile + 1) * KV_ROWS, n);
    }
    copies_commit();

    Sums scores[kBlocks][kColumns];
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        wmma::fill_fragment(scores[block][column], 0.0f);
      }
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Left left[kBlocks];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const half* from = q_tile + (warp * Q_ROWS + 16 * block) * kPitch + 16 * step;
        wmma::load_matrix_sync(left[block], from, kPitch);
      }
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
        Keys keys;
        wmma::load_matrix_sync(keys, k_tile + 16 * column * kPitch + 16 * step, kPitch);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          wmma::mma_sync(scores[block][column], left[block], keys, scores[block][column]);
        }
      }
    }

    const int first_column = tile * KV_ROWS;
    if (first_column + KV_ROWS > n || (CAUSAL && first_column + KV_ROWS - 1 > warp_row)) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int column = 0; column < kColumns; ++column) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            const int row = warp_row + 16 * block + lane / 4 + 8 * lower(i);
            const int at = first_column + 16 * column + column_of(i, lane);
            if (at >= n || (CAUSAL && at > row)) scores[block][column].x[i] = minus_infinity();
          }
        }
      }
    }

#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float shrink[2], offset[2];
#pragma unroll
      for (int half_of = 0; half_of < 2; ++half_of) {
        float largest = minus_infinity();
#pragma unroll
        for (int column = 0; column < kColumns; ++column) {
#pragma unroll
          for (int i = 0; i < 8; ++i) {
            if (lower(i) == half_of) largest = fmaxf(largest, scores[block][column].x[i]);
          }
        }
        largest = raised<LAZY>(row_max[block][half_of], quad_max(largest), factor);
        shrink[half_of] = exp2_unit((row_max[block][half_of] - largest) * factor);
        offset[half_of] = largest * factor;
        row_max[block][half_of] = largest;
        row_sum[block][half_of] *= shrink[half_of];
      }
#pragma unroll
      for (int column = 0; column < kColumns; ++column) {
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          float& score = scores[block][column].x[i];
          score = exp2_mixed<POLY>(fmaf(score, factor, -offset[lower(i)]), column);
          row_sum[block][lower(i)] += score;
        }
      }
      if (must_rescale<LAZY>(shrink[0], shrink[1])) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
          for (int i = 0; i < 8; ++i) out[block][step].x[i] *= shrink[lower(i)];
        }
      }
    }

#pragma unroll
    for (int column = 0; column < kColumns; ++column) {
      Left weights[kBlocks];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
          const float* pair = &scores[block][column].x[i];
          reinterpret_cast<unsigned&>(weights[block].x[i]) = pack(pair[0], pair[1]);
        }
      }
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
        Values values;
        wmma::load_matrix_sync(values, v_tile + 16 * column * kPitch + 16 * step, kPitch);
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          wmma::mma_sync(out[block][step], weights[block], values, out[block][step]);
        }
      }
    }
  }

#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int half_of = 0; half_of < 2; ++half_of) {
      const int row = warp_row + 16 * block + lane / 4 + 8 * half_of;
      const float inverse = 1.0f / quad_sum(row_sum[block][half_of]);
      if (row < n) {
        half* to = o + base + static_cast<size_t>(row) * HEAD_DIM;
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
#pragma unroll
          for (int i = 2 * half_of; i < 8; i += 4) {
            const float* pair = &out[block][step].x[i];
            *reinterpret_cast<unsigned*>(to + 16 * step + column_of(i, lane)) =
                pack(pair[0] * inverse, pair[1] * inverse);
          }
        }
      }
    }
  }
}
