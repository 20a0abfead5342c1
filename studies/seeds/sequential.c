/* Attention in fp32 on one core, tile by tile, in five functions: what the first kernels of the
 * ladder (studies/workloads/attention/ladder.cu) were made from.
 *
 *   sequential PROBLEMS TOKENS DIM IN OUT
 *
 * IN holds Q, K and V, OUT gets O; all row-major floats. Prints seconds for input, computing and
 * output. TOKENS is a multiple of 32. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ROWS = 32, COLUMNS = 32 };

static double now(void)
{
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec + 1e-9 * at.tv_nsec;
}

static void products(float* scores, const float* q, const float* k, int dim, float scale)
{
    for (int row = 0; row < ROWS; ++row)
        for (int column = 0; column < COLUMNS; ++column) {
            float sum = 0.0f;
            for (int x = 0; x < dim; ++x) sum += q[row * dim + x] * k[column * dim + x];
            scores[row * COLUMNS + column] = sum * scale;
        }
}

static void largest_of_rows(float* largest, const float* scores)
{
    for (int row = 0; row < ROWS; ++row) {
        largest[row] = scores[row * COLUMNS];
        for (int column = 1; column < COLUMNS; ++column)
            largest[row] = fmaxf(largest[row], scores[row * COLUMNS + column]);
    }
}

static void exponentials(float* scores, const float* largest)
{
    for (int row = 0; row < ROWS; ++row)
        for (int column = 0; column < COLUMNS; ++column)
            scores[row * COLUMNS + column] = expf(scores[row * COLUMNS + column] - largest[row]);
}

static void sums_of_rows(float* sums, const float* scores)
{
    for (int row = 0; row < ROWS; ++row) {
        sums[row] = 0.0f;
        for (int column = 0; column < COLUMNS; ++column) sums[row] += scores[row * COLUMNS + column];
    }
}

static void update(float* m, float* l, float* o, const float* largest, const float* sums,
                   const float* scores, const float* v, int dim)
{
    for (int row = 0; row < ROWS; ++row) {
        const float raised = fmaxf(m[row], largest[row]);
        const float old = expf(m[row] - raised), fresh = expf(largest[row] - raised);
        const float total = old * l[row] + fresh * sums[row];
        for (int x = 0; x < dim; ++x) {
            float weighted = 0.0f;
            for (int column = 0; column < COLUMNS; ++column)
                weighted += scores[row * COLUMNS + column] * v[column * dim + x];
            o[row * dim + x] = (old * l[row] * o[row * dim + x] + fresh * weighted) / total;
        }
        m[row] = raised;
        l[row] = total;
    }
}

static void attention(const float* q, const float* k, const float* v, float* o, int tokens, int dim)
{
    const float scale = 1.0f / sqrtf((float)dim);
    float scores[ROWS * COLUMNS], largest[ROWS], sums[ROWS], m[ROWS], l[ROWS];
    for (int first = 0; first < tokens; first += ROWS) {
        float* out = o + (size_t)first * dim;
        for (int row = 0; row < ROWS; ++row) {
            m[row] = -INFINITY;
            l[row] = 0.0f;
            for (int x = 0; x < dim; ++x) out[row * dim + x] = 0.0f;
        }
        for (int tile = 0; tile < tokens; tile += COLUMNS) {
            products(scores, q + (size_t)first * dim, k + (size_t)tile * dim, dim, scale);
            largest_of_rows(largest, scores);
            exponentials(scores, largest);
            sums_of_rows(sums, scores);
            update(m, l, out, largest, sums, scores, v + (size_t)tile * dim, dim);
        }
    }
}

int main(int count, char** given)
{
    if (count != 6) return 2;
    const int problems = atoi(given[1]), tokens = atoi(given[2]), dim = atoi(given[3]);
    if (problems < 1 || tokens < 1 || tokens % ROWS || dim < 1) return 2;
    const size_t one = (size_t)tokens * dim, all = problems * one;
    float *in = malloc(3 * all * sizeof(float)), *out = malloc(all * sizeof(float));
    const double start = now();
    FILE* from = fopen(given[4], "rb");
    if (!in || !out || !from || fread(in, sizeof(float), 3 * all, from) != 3 * all) return 1;
    fclose(from);
    const double read = now();
    for (int problem = 0; problem < problems; ++problem) {
        const float* q = in + problem * one;
        attention(q, q + all, q + 2 * all, out + problem * one, tokens, dim);
    }
    const double computed = now();
    FILE* to = fopen(given[5], "wb");
    if (!to || fwrite(out, sizeof(float), all, to) != all || fclose(to)) return 1;
    const double written = now();
    printf("%.6f %.6f %.6f\n", read - start, computed - read, written - computed);
    return 0;
}
