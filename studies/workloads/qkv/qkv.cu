// The query, key and value product of a transformer layer:
//   out[word][i] = sum over m of weights[i][m] * in[word][m]
// Six versions, each for both layer shapes. Any grid and block of whole warps.

// Weights with rows and columns swapped, so that threads with neighbouring i read neighbouring
// words of memory: rearranged[m][i] = weights[i][m].
template <int MODEL, int QKV>
__device__ void rearrange(const float* __restrict__ weights, float* __restrict__ rearranged)
{
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < MODEL * QKV;
         i += gridDim.x * blockDim.x) {
        rearranged[i] = weights[i % QKV * MODEL + i / QKV];
    }
}

// LEAN: addresses are pointers that move on every 16 terms, so that loads have constant offsets and a
// multiply-add takes two loads and little else; with an index each load's address is computed.
template <int MODEL, int QKV, bool REARRANGED, bool LEAN>
__device__ __forceinline__ float dot(const float* __restrict__ weights,
                                     const float* __restrict__ word, int i)
{
    float sum = 0.0f;
    if constexpr (LEAN) {
        constexpr int TERMS = 16, STEP = REARRANGED ? QKV : 1;
        static_assert(MODEL % TERMS == 0, "no rest");
        const float* weight = weights + (REARRANGED ? i : i * MODEL);
#pragma unroll 1
        for (int m = 0; m < MODEL; m += TERMS) {
#pragma unroll
            for (int k = 0; k < TERMS; ++k) sum += weight[k * STEP] * word[k];
            weight += TERMS * STEP;
            word += TERMS;
        }
    } else {
#pragma unroll 8
        for (int m = 0; m < MODEL; ++m) {
            sum += (REARRANGED ? weights[m * QKV + i] : weights[i * MODEL + m]) * word[m];
        }
    }
    return sum;
}

// Outputs go to threads one after another: a warp has 32 neighbouring i of one word (or two).
template <int MODEL, int QKV, bool REARRANGED, bool LEAN = false>
__device__ void base(const float* __restrict__ weights, const float* __restrict__ in,
                     float* __restrict__ out, int words)
{
    for (int at = blockIdx.x * blockDim.x + threadIdx.x; at < words * QKV;
         at += gridDim.x * blockDim.x) {
        out[at] = dot<MODEL, QKV, REARRANGED, LEAN>(weights, in + at / QKV * MODEL, at % QKV);
    }
}

// A warp has 8 neighbouring i of 4 words, so a weight that it loads serves 4 threads.
template <int MODEL, int QKV, bool REARRANGED, bool LEAN = false>
__device__ void strip(const float* __restrict__ weights, const float* __restrict__ in,
                      float* __restrict__ out, int words)
{
    constexpr int ACROSS = 8, DOWN = 4, STRIPS = QKV / ACROSS;
    static_assert(QKV % ACROSS == 0 && ACROSS * DOWN == 32, "a warp covers whole strips");
    const int lane = threadIdx.x % 32, warps = blockDim.x / 32;
    const int tiles = (words + DOWN - 1) / DOWN * STRIPS;
    for (int tile = blockIdx.x * warps + threadIdx.x / 32; tile < tiles;
         tile += gridDim.x * warps) {
        const int word = tile / STRIPS * DOWN + lane / ACROSS;
        const int i = tile % STRIPS * ACROSS + lane % ACROSS;
        if constexpr (LEAN) {
            // all lanes sum, those past the end the last word: within a branch that lanes take apart
            // the compiler copies the descriptor of global memory again for nearly every load
            const float* from = in + (word < words ? word : words - 1) * MODEL;
            const float sum = dot<MODEL, QKV, REARRANGED, true>(weights, from, i);
            if (word < words) out[word * QKV + i] = sum;
        } else if (word < words) {
            out[word * QKV + i] =
                dot<MODEL, QKV, REARRANGED, false>(weights, in + word * MODEL, i);
        }
    }
}

#define VERSIONS(LAYER, MODEL, QKV)                                                              \
    extern "C" __global__ void rearrange_##LAYER(const float* weights, float* rearranged)        \
    {                                                                                            \
        rearrange<MODEL, QKV>(weights, rearranged);                                              \
    }                                                                                            \
    VERSION(base_##LAYER, (base<MODEL, QKV, false>))                                             \
    VERSION(base_w2_##LAYER, (base<MODEL, QKV, true>))                                           \
    VERSION(strip_##LAYER, (strip<MODEL, QKV, false>))                                           \
    VERSION(strip_w2_##LAYER, (strip<MODEL, QKV, true>))                                         \
    VERSION(base_lean_##LAYER, (base<MODEL, QKV, true, true>))                                   \
    VERSION(strip_lean_##LAYER, (strip<MODEL, QKV, true, true>))

#define BARE(...) __VA_ARGS__
#define VERSION(NAME, FUNCTION)                                                                  \
    extern "C" __global__ void __launch_bounds__(1024)                                           \
        NAME(const float* weights, const float* in, float* out, int words)                       \
    {                                                                                            \
        BARE FUNCTION(weights, in, out, words);                                                  \
    }

VERSIONS(small, 32, 96)
VERSIONS(large, 512, 1536)
