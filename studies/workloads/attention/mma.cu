// Attention in fp16 with fp32 sums on mma.m16n8k16 (Ampere and later).
//
// A warp owns WARP_ROWS rows of Q; the block's warps share each tile of KV_ROWS rows of K and V. The
// scores, their exponentials and the output stay in registers: the accumulator of Q K^T has the same
// layout as the left operand of P V. Tiles arrive by cp.async one iteration ahead, in shared memory
// whose 16-byte chunks are permuted (chunk xor row mod 8) so that ldmatrix meets no bank twice.
//
// -DHEAD_DIM=64|128 -DWARP_ROWS=16|32 -DKV_ROWS=32|64|96|128 -DWARPS=4|8 -DMIN_BLOCKS=1.. -DCAUSAL=0|1
// -DKEEP_Q=0|1 (Q in registers, or read again for every tile) -DPOLY=0..8 -DLAZY=0|8 (see exp2_mixed
// and raised)

#include "tensor.cuh"

namespace {

constexpr int kRowBytes = HEAD_DIM * 2;
constexpr int kChunks = HEAD_DIM / 8;  // of 16 bytes, in a row
constexpr int kSteps = HEAD_DIM / 16;  // of Q K^T along the head dimension
constexpr int kBlocks = WARP_ROWS / 16;
constexpr int kColumns = KV_ROWS / 8;
constexpr int kThreads = WARPS * 32;
constexpr int kQRows = WARPS * WARP_ROWS;
constexpr int kTileBytes = KV_ROWS * kRowBytes;

// Start of a chunk in a tile.
__device__ __forceinline__ unsigned place(int row, int chunk) {
  return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

template <int Rows>
__device__ __forceinline__ void load_tile(unsigned to, const Half* from, int first, int n) {
  const int row = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks;
  // steps of a multiple of eight rows keep a chunk's place in its row
  copy_rows<Rows, kChunks, kThreads, kRowBytes>(to + place(row, chunk), from, first, row, chunk, n);
}

}  // namespace

// q, k, v, o: [batch][n][HEAD_DIM] halves; grid (tiles of Q, batch); `factor` is scale * log2(e), so
// that 2^(factor x) = e^(scale x).
extern "C" __global__ void __launch_bounds__(kThreads, MIN_BLOCKS)
attention_mma(const Half* q, const Half* k, const Half* v, Half* o, int n, float factor) {
  extern __shared__ __align__(1024) unsigned char arena[];
  const unsigned q_tile = shared_address(arena);
  const unsigned k_tiles = q_tile + kQRows * kRowBytes;
  const unsigned v_tiles = k_tiles + 2 * kTileBytes;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  // The longest columns of blocks first: with a causal mask the last rows have the most tiles.
  const int tile_of_q = CAUSAL ? gridDim.x - 1 - blockIdx.x : blockIdx.x;
  const int first_row = tile_of_q * kQRows;
  const size_t base = static_cast<size_t>(blockIdx.y) * n * HEAD_DIM;
  const Half *k_base = k + base, *v_base = v + base;

  const int end = CAUSAL ? min(n, first_row + kQRows) : n;
  const int tiles = (end + KV_ROWS - 1) / KV_ROWS;
  load_tile<kQRows>(q_tile, q + base, first_row, n);
  load_tile<KV_ROWS>(k_tiles, k_base, 0, n);
  load_tile<KV_ROWS>(v_tiles, v_base, 0, n);
  copies_commit();

  // Rows that a lane addresses for ldmatrix: see the fragments' layouts in the PTX ISA.
  const int q_row = warp * WARP_ROWS + lane % 16, q_chunk = lane / 16;
  const int k_row = lane % 8 + lane / 16 * 8, k_chunk = lane / 8 % 2;
  const int v_row = lane % 16, v_chunk = lane / 16;

  float out[kBlocks][kChunks][4] = {};
  float row_max[kBlocks][2], row_sum[kBlocks][2];
  unsigned q_kept[kBlocks][kSteps][4];
#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
    row_max[block][0] = row_max[block][1] = minus_infinity();
    row_sum[block][0] = row_sum[block][1] = 0.0f;
  }

  for (int tile = 0; tile < tiles; ++tile) {
    const unsigned k_tile = k_tiles + tile % 2 * kTileBytes;
    const unsigned v_tile = v_tiles + tile % 2 * kTileBytes;
    copies_wait<0>();
    __syncthreads();
    if (tile + 1 < tiles) {
      const unsigned next = (tile + 1) % 2 * kTileBytes;
      load_tile<KV_ROWS>(k_tiles + next, k_base, (tile + 1) * KV_ROWS, n);
      load_tile<KV_ROWS>(v_tiles + next, v_base, (tile + 1) * KV_ROWS, n);
    }
    copies_commit();
    if (KEEP_Q && tile == 0) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int step = 0; step < kSteps; ++step) {
          load_matrices(q_kept[block][step],
                        q_tile + place(q_row + 16 * block, 2 * step + q_chunk));
        }
      }
    }

    float scores[kBlocks][kColumns][4] = {};
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      unsigned q_now[kBlocks][4];
      if constexpr (!KEEP_Q) {
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          load_matrices(q_now[block], q_tile + place(q_row + 16 * block, 2 * step + q_chunk));
        }
      }
#pragma unroll
      for (int pair = 0; pair < kColumns / 2; ++pair) {
        unsigned keys[4];
        load_matrices(keys, k_tile + place(k_row + 16 * pair, 2 * step + k_chunk));
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          const auto& left = KEEP_Q ? q_kept[block][step] : q_now[block];
          multiply(scores[block][2 * pair], left, keys[0], keys[1]);
          multiply(scores[block][2 * pair + 1], left, keys[2], keys[3]);
        }
      }
    }

    const int first_column = tile * KV_ROWS;
    const int warp_row = first_row + warp * WARP_ROWS;
    const bool mask = first_column + KV_ROWS > n ||
                      (CAUSAL && first_column + KV_ROWS - 1 > warp_row);
    if (mask) {
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
        for (int column = 0; column < kColumns; ++column) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            const int row = warp_row + 16 * block + lane / 4 + i / 2 * 8;
            const int at = first_column + 8 * column + lane % 4 * 2 + i % 2;
            if (at >= n || (CAUSAL && at > row)) scores[block][column][i] = minus_infinity();
          }
        }
      }
    }

#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      float shrink[2];
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        float largest = scores[block][0][2 * half];
#pragma unroll
        for (int column = 0; column < kColumns; ++column) {
          largest = fmaxf(largest, scores[block][column][2 * half]);
          largest = fmaxf(largest, scores[block][column][2 * half + 1]);
        }
        largest = raised<LAZY>(row_max[block][half], quad_max(largest), factor);
        shrink[half] = exp2_unit((row_max[block][half] - largest) * factor);
        const float offset = largest * factor;
        row_max[block][half] = largest;
        float sum = 0.0f;
#pragma unroll
        for (int column = 0; column < kColumns; ++column) {
#pragma unroll
          for (int i = 2 * half; i < 2 * half + 2; ++i) {
            float& score = scores[block][column][i];
            score = exp2_mixed<POLY>(fmaf(score, factor, -offset), column);
            sum += score;
          }
        }
        // Each lane sums its own columns; the four lanes of a row are added after the last tile.
        row_sum[block][half] = row_sum[block][half] * shrink[half] + sum;
      }
      if (must_rescale<LAZY>(shrink[0], shrink[1])) {
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
#pragma unroll
          for (int i = 0; i < 4; ++i) out[block][chunk][i] *= shrink[i / 2];
        }
      }
    }

#pragma unroll
    for (int step = 0; step < KV_ROWS / 16; ++step) {
      unsigned weights[kBlocks][4];
#pragma unroll
      for (int block = 0; block < kBlocks; ++block) {
        const auto& left = scores[block][2 * step];
        const auto& right = scores[block][2 * step + 1];
        weights[block][0] = pack(left[0], left[1]);
        weights[block][1] = pack(left[2], left[3]);
        weights[block][2] = pack(right[0], right[1]);
        weights[block][3] = pack(right[2], right[3]);
      }
#pragma unroll
      for (int pair = 0; pair < kChunks / 2; ++pair) {
        unsigned values[4];
        load_matrices_transposed(values, v_tile + place(v_row + 16 * step, 2 * pair + v_chunk));
#pragma unroll
        for (int block = 0; block < kBlocks; ++block) {
          multiply(out[block][2 * pair], weights[block], values[0], values[1]);
          multiply(out[block][2 * pair + 1], weights[block], values[2], values[3]);
        }
      }
    }
  }

#pragma unroll
  for (int block = 0; block < kBlocks; ++block) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + warp * WARP_ROWS + 16 * block + lane / 4 + 8 * half;
      const float inverse = 1.0f / quad_sum(row_sum[block][half]);
      if (row < n) {
        Half* to = o + base + static_cast<size_t>(row) * HEAD_DIM + lane % 4 * 2;
#pragma unroll
        for (int chunk = 0; chunk < kChunks; ++chunk) {
          const float* value = out[block][chunk] + 2 * half;
          *reinterpret_cast<unsigned*>(to + 8 * chunk) =
              pack(value[0] * inverse, value[1] * inverse);
        }
      }
    }
  }
}
