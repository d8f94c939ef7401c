/* peer_quant.c - errors of our encoders and of llama.cpp's release libraries on the same values: what
 * tests/peer/quant.sh prints.  Built by that script, not by CMake.
 *
 *   peer_quant [plain]      values: normal, with rare large ones, and small; with weights unless "plain" */
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format/quant.h"

size_t ggml_quantize_chunk(int type, const float *src, void *dst, int64_t start, int64_t rows, int64_t cols,
                           const float *weights);

enum { ROWS = 64, COLS = 1024, N = ROWS * COLS };

static uint64_t state = 1;

static double unit(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return ((double)(state >> 11) + 0.5) / 9007199254740992.0;
}

static double normal(void) { return sqrt(-2 * log(unit())) * cos(6.283185307179586 * unit()); }

static double error(const quant_info *q, const void *blocks, const float *x, const float *w)
{
    static float y[N];
    double e = 0, all = 0;
    q->decode(y, blocks, N);
    for (int i = 0; i < N; i++) {
        double u = w ? w[i % COLS] : 1, d = (double)y[i] - x[i];
        e += u * d * d;
        all += u * (double)x[i] * x[i];
    }
    return sqrt(e / all);
}

int main(int argc, char **argv)
{
    static const uint32_t types[] = { QT_Q4_0, QT_Q4_K, QT_Q5_K, QT_Q6_K };
    static const char *const shapes[] = { "normal", "with outliers", "tiny" };
    static float x[N], w[COLS];
    static uint8_t ours[N * 2], theirs[N * 2];
    bool plain = argc > 1 && !strcmp(argv[1], "plain");
    int worse = 0;
    for (int i = 0; i < COLS; i++) w[i] = (float)exp(1.5 * normal());
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (int shape = 0; shape < 3; shape++) {
            const quant_info *q = quant_get(types[t]);
            for (int i = 0; i < N; i++) {
                double v = 0.02 * normal();
                if (shape == 1 && unit() < 0.003) v *= 12;
                x[i] = (float)(shape == 2 ? v * 1e-3 : v);
            }
            for (int r = 0; r < ROWS; r++) {
                uint8_t *row = ours + (size_t)(r * COLS / q->block * q->bytes);
                if (plain) q->encode(row, x + r * COLS, COLS);
                else q->weigh(row, x + r * COLS, w, COLS);
            }
            ggml_quantize_chunk((int)types[t], x, theirs, 0, ROWS, COLS, plain ? NULL : w);
            double a = error(q, ours, x, plain ? NULL : w), b = error(q, theirs, x, plain ? NULL : w);
            bool fine = types[t] == QT_Q4_0 && plain ? a <= b * 1.0001 : a <= b;
            printf("%-5s %-14s %-8s ours %.5f  peer %.5f  ratio %.4f%s\n", q->name, shapes[shape],
                   plain ? "" : "weighed", a, b, a / b, fine ? "" : "  WORSE");
            worse += !fine;
        }
    return worse != 0;
}
