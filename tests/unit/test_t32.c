/* test_t32.c - the packed layout: every byte of every type against an index formula of the test's own, the decode bit
 * for bit against that of the GGUF rows and against ggml's, and the shapes that are refused. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/rng.h"
#include "format/t32.h"

static const uint32_t types[] = { QT_F32,  QT_F16,  QT_BF16, QT_Q4_0, QT_Q4_1, QT_Q5_0,   QT_Q5_1,  QT_Q8_0,
                                  QT_Q2_K, QT_Q3_K, QT_Q4_K, QT_Q5_K, QT_Q6_K, QT_IQ4_NL, QT_IQ4_XS };
enum { N_TYPES = sizeof types / sizeof *types };

static const size_t row_counts[] = { 1, 31, 32, 33, 70, 96 };
/* Of types whose block is one value; of the others this many blocks. */
static const size_t plain_cols[] = { 1, 2, 31, 32, 33, 63, 64, 101 }, block_counts[] = { 1, 2, 5 };

/* One matrix of random bytes, as rows and packed. */
typedef struct {
    t32_shape s;
    size_t row_bytes;
    uint8_t *rows, *packed; /* owned */
} matrix;

static matrix make(uint32_t type, size_t n, size_t k)
{
    matrix m;
    assert_true(t32_shape_of(&m.s, type, n, k));
    assert_true(quant_row_bytes(type, k, &m.row_bytes));
    m.rows = malloc(n * m.row_bytes);
    m.packed = malloc(m.s.bytes);
    assert_non_null(m.rows);
    assert_non_null(m.packed);
    for (size_t i = 0; i < n * m.row_bytes; i++) m.rows[i] = (uint8_t)(rng_mix(i * 31 + type * 977 + n * 5 + k) >> 11);
    memset(m.packed, 0xa5, m.s.bytes);
    t32_pack(&m.s, m.packed, m.rows, 0, m.s.stripes);
    return m;
}

static void drop(matrix *m)
{
    free(m->rows);
    free(m->packed);
}

static void each(void (*check)(const matrix *))
{
    for (size_t t = 0; t < N_TYPES; t++) {
        const bool plain = quant_get(types[t])->block == 1;
        const size_t n_cols = plain ? sizeof plain_cols / sizeof *plain_cols : 3;
        for (size_t r = 0; r < sizeof row_counts / sizeof *row_counts; r++)
            for (size_t c = 0; c < n_cols; c++) {
                size_t k = plain ? plain_cols[c] : block_counts[c] * (size_t)quant_get(types[t])->block;
                matrix m = make(types[t], row_counts[r], k);
                check(&m);
                drop(&m);
            }
    }
}

/* ------------------------------------------------------------ the bytes */

static size_t up32(size_t n) { return (n + 31) / 32 * 32; }

/* want[] as the table in t32.h says, value by value. */
static void expect_q4_0(const matrix *m, uint8_t *want)
{
    for (size_t n = 0; n < m->s.n; n++)
        for (size_t k = 0; k < m->s.k; k++) {
            const uint8_t *block = m->rows + n * m->row_bytes + k / 32 * 18;
            uint8_t *tile = want + (n / 32 * (m->s.k / 32) + k / 32) * 576;
            int nibble = block[2 + k % 16] >> (k % 32 < 16 ? 0 : 4) & 15;
            tile[k % 32 / 2 * 32 + n % 32] |= (uint8_t)(k % 2 ? nibble * 16 : nibble);
            memcpy(tile + 512 + n % 32 * 2, block, 2);
        }
}

static void expect_q8_0(const matrix *m, uint8_t *want)
{
    for (size_t n = 0; n < m->s.n; n++)
        for (size_t k = 0; k < m->s.k; k++) {
            const uint8_t *block = m->rows + n * m->row_bytes + k / 32 * 34;
            uint8_t *tile = want + (n / 32 * (m->s.k / 32) + k / 32) * 1088;
            tile[k % 32 / 2 * 64 + n % 32 * 2 + k % 2] = block[2 + k % 32];
            memcpy(tile + 1024 + n % 32 * 2, block, 2);
        }
}

static void expect_f16(const matrix *m, uint8_t *want)
{
    for (size_t n = 0; n < m->s.n; n++)
        for (size_t k = 0; k < m->s.k; k++) {
            size_t tile = n / 32 * (up32(m->s.k) / 32) + k / 32;
            size_t half = k % 32 / 2 * 64 + n % 32 * 2 + k % 2;
            memcpy(want + tile * 2048 + 2 * half, m->rows + n * m->row_bytes + 2 * k, 2);
        }
}

static void expect_blocks(const matrix *m, uint8_t *want)
{
    const quant_info *q = quant_get(m->s.type);
    const size_t unit = q->block == 1 ? 32 * (size_t)q->bytes : (size_t)q->bytes;
    const size_t units = (m->row_bytes + unit - 1) / unit;
    for (size_t n = 0; n < m->s.n; n++)
        for (size_t b = 0; b < m->row_bytes; b++)
            want[((n / 32 * units + b / unit) * 32 + n % 32) * unit + b % unit] = m->rows[n * m->row_bytes + b];
}

static void check_bytes(const matrix *m)
{
    uint8_t *want = calloc(1, m->s.bytes);
    assert_non_null(want);
    switch (m->s.type) {
    case QT_Q4_0: expect_q4_0(m, want); break;
    case QT_Q8_0: expect_q8_0(m, want); break;
    case QT_F16: expect_f16(m, want); break;
    default: expect_blocks(m, want);
    }
    for (size_t i = 0; i < m->s.bytes; i++)
        if (m->packed[i] != want[i])
            fail_msg("%s, %zu x %zu: byte %zu of %zu is %02x, not %02x", quant_get(m->s.type)->name, m->s.n, m->s.k, i,
                     m->s.bytes, m->packed[i], want[i]);
    free(want);
}

static void bytes(void **state) { each(check_bytes); }

/* ------------------------------------------------------------ pieces, and the way back */

static void check_pieces(const matrix *m)
{
    uint8_t *other = malloc(m->s.bytes);
    assert_non_null(other);
    for (size_t i = m->s.stripes; i-- > 0;) t32_pack(&m->s, other + i * m->s.stripe_bytes, m->rows, i, i + 1);
    assert_memory_equal(other, m->packed, m->s.bytes);
    free(other);
}

static void pieces(void **state) { each(check_pieces); }

static void check_decode(const matrix *m)
{
    const quant_info *q = quant_get(m->s.type);
    const size_t ld = m->s.tile_k + 3;
    float *want = malloc(m->s.k * sizeof *want), *got = malloc(m->s.k * sizeof *got);
    float *tile = malloc(32 * ld * sizeof *tile);
    assert_true(want && got && tile);
    for (size_t n = 0; n < m->s.n; n++) {
        q->decode(want, m->rows + n * m->row_bytes, m->s.k);
        t32_decode_row(&m->s, got, m->packed, n);
        assert_memory_equal(got, want, m->s.k * sizeof *want);
        for (size_t t = 0; t < m->s.tiles; t++) {
            size_t at = t * m->s.tile_k, len = m->s.k - at < m->s.tile_k ? m->s.k - at : m->s.tile_k;
            t32_decode_tile(&m->s, tile, ld, t32_tile(&m->s, m->packed, n / 32, t));
            assert_memory_equal(tile + n % 32 * ld, want + at, len * sizeof *want);
            for (size_t i = len; i < m->s.tile_k; i++) assert_true(tile[n % 32 * ld + i] == 0);
        }
    }
    free(want);
    free(got);
    free(tile);
}

static void decodes(void **state) { each(check_decode); }

/* The fixtures of test_quant.c (tests/fixtures/quant/README.md: 512 values as blocks, then as floats), as two rows. */
static void decodes_as_ggml(void **state)
{
    enum { K = 256 };
    for (size_t t = 0; t < N_TYPES; t++) {
        static uint8_t rows[2 * K * 4];
        static float want[2 * K], got[K];
        char path[64];
        matrix m;
        if (types[t] == QT_F32) continue; /* nothing to decode */
        assert_true(t32_shape_of(&m.s, types[t], 2, K) && quant_row_bytes(types[t], K, &m.row_bytes));
        snprintf(path, sizeof path, "tests/fixtures/quant/%s.bin", quant_get(types[t])->name);
        FILE *f = fopen(path, "rb");
        assert_non_null(f);
        assert_int_equal(fread(rows, m.row_bytes, 2, f), 2);
        assert_int_equal(fread(want, sizeof *want, 2 * K, f), 2 * K);
        fclose(f);
        uint8_t *packed = malloc(m.s.bytes);
        assert_non_null(packed);
        t32_pack(&m.s, packed, rows, 0, 1);
        for (size_t r = 0; r < 2; r++) {
            t32_decode_row(&m.s, got, packed, r);
            if (memcmp(got, want + r * K, sizeof got)) fail_msg("%s, row %zu", quant_get(types[t])->name, r);
        }
        free(packed);
    }
}

/* Rows of padding count for nothing: zeros of either sign. */
static void padding(void **state)
{
    for (size_t t = 0; t < N_TYPES; t++) {
        matrix m = make(types[t], 33, 256);
        float tile[32 * 256];
        t32_decode_tile(&m.s, tile, m.s.tile_k, t32_tile(&m.s, m.packed, 1, 0));
        for (size_t i = m.s.tile_k; i < 32 * m.s.tile_k; i++) assert_true(tile[i] == 0);
        drop(&m);
    }
}

/* ------------------------------------------------------------ shapes */

static void shapes(void **state)
{
    static const struct {
        uint32_t type;
        uint64_t n, k;
        size_t tile_k, tile_bytes, tiles, stripes, bytes; /* tile_k 0: refused */
    } all[] = {
        { QT_Q4_0, 4096, 4096, 32, 576, 128, 128, 4096 / 32 * 18 * 4096 }, /* not a byte more than the rows */
        { QT_Q8_0, 4096, 4096, 32, 1088, 128, 128, 4096 / 32 * 34 * 4096 },
        { QT_F16, 33, 33, 32, 2048, 2, 2, 8192 },
        { QT_BF16, 1, 1, 32, 2048, 1, 1, 2048 },
        { QT_F32, 64, 96, 32, 4096, 3, 2, 64 * 96 * 4 },
        { QT_Q6_K, 40, 512, 256, 6720, 2, 2, 64 * 2 * 210 },
        { QT_IQ4_NL, 32, 64, 32, 576, 2, 1, 1152 },
        { .type = QT_Q4_0, .n = 32, .k = 33 },
        { .type = QT_Q4_K, .n = 32, .k = 128 },
        { .type = QT_F16, .n = 0, .k = 32 },
        { .type = QT_F16, .n = 32, .k = 0 },
        { .type = 4, .n = 32, .k = 32 },
        { .type = QT_COUNT, .n = 32, .k = 32 },
        { .type = QT_F32, .n = 1ull << 32, .k = 1ull << 32 },
        { .type = QT_F32, .n = UINT64_MAX, .k = 1 },
        { .type = QT_F32, .n = 1, .k = UINT64_MAX },
        { .type = QT_Q4_0, .n = 1, .k = UINT64_MAX - 31 },
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        t32_shape s;
        bool fits = t32_shape_of(&s, all[i].type, all[i].n, all[i].k);
        if (fits != (all[i].tile_k > 0)) fail_msg("shape %zu", i);
        if (!fits) continue;
        assert_int_equal(s.tile_k, all[i].tile_k);
        assert_int_equal(s.tile_bytes, all[i].tile_bytes);
        assert_int_equal(s.tiles, all[i].tiles);
        assert_int_equal(s.stripes, all[i].stripes);
        assert_int_equal(s.stripe_bytes, s.tiles * s.tile_bytes);
        assert_int_equal(s.bytes, all[i].bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(bytes),           cmocka_unit_test(pieces),  cmocka_unit_test(decodes),
        cmocka_unit_test(decodes_as_ggml), cmocka_unit_test(padding), cmocka_unit_test(shapes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
