// 512 pieces of code of equal length. Every warp runs one after another in an order of its own;
// `mask` limits how many of them it visits, so the machine code and the count of executed
// instructions stay the same, and only the amount of code in use changes.
//
// A piece is one block of text: 64 dependent multiply-adds. Its comment makes it another text than
// the others, so that no compiler merges two of them.
#define LINE "fma.rn.f32 %0, %0, 0f3F7FFF58, %1;\n"
#define LINES8 LINE LINE LINE LINE LINE LINE LINE LINE
#define PIECE(n)                                                                          \
  case n:                                                                                 \
    asm volatile("// piece " #n "\n" LINES8 LINES8 LINES8 LINES8 LINES8 LINES8 LINES8 LINES8 \
                 : "+f"(a)                                                                \
                 : "f"(0.001f * ((n) + 1)));                                              \
    break;
#define PIECES8(n) \
  PIECE(n + 0) PIECE(n + 1) PIECE(n + 2) PIECE(n + 3) PIECE(n + 4) PIECE(n + 5) PIECE(n + 6) PIECE(n + 7)
#define PIECES64(n)                                                                            \
  PIECES8(n + 0) PIECES8(n + 8) PIECES8(n + 16) PIECES8(n + 24) PIECES8(n + 32) PIECES8(n + 40) \
  PIECES8(n + 48) PIECES8(n + 56)

extern "C" __global__ void __launch_bounds__(256)
code_footprint(const float* __restrict__ in, float* __restrict__ out, int rounds, int mask) {
  const unsigned t = blockIdx.x * blockDim.x + threadIdx.x;
  float a = in[t];
  unsigned at = (t / 32) * 40503u;
  for (int i = 0; i < rounds; ++i) {
    at = at * 1664525u + 1013904223u;
    // the same for all lanes of a warp
    switch ((at >> 16) & mask) {
      PIECES64(0) PIECES64(64) PIECES64(128) PIECES64(192) PIECES64(256) PIECES64(320)
      PIECES64(384) PIECES64(448)
    }
  }
  out[t] = a;
}
