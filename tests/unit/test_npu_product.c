/* test_npu_product.c - one matrix product by the DSP's code in this process: the same bits whatever the number of
 * threads and however little VTCM makes it cut the product, and near what loops in double give. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/half.h"
#include "base/rng.h"
#include "device/npu/dsp/plan.h"
#include "device/npu/transport.h"
#include "format/quant.h"
#include "format/t32.h"

/* Tiles that are not full at every side, an odd number of stripes. */
enum { ROWS = 100, K = 160, N = 330, IN_STRIDE = 192, OUT_STRIDE = 384, CONTEXTS = 7 };
enum { X, OUT, W, BIAS, PASS, TENSORS };

static const struct {
    uint32_t wire, quant;
} types[] = { { NPU_T32_F16, QT_F16 }, { NPU_T32_Q8_0, QT_Q8_0 }, { NPU_T32_Q4_0, QT_Q4_0 } };

/* Where the tensors lie in their buffer, whose size is a multiple of NPU_LINE like their places. */
enum {
    OUT_AT = ROWS * IN_STRIDE * 2,
    BIAS_AT = OUT_AT + ROWS * OUT_STRIDE * 2,
    PASS_AT = BIAS_AT + 11 * NPU_LINE,
    OWN_BYTES = PASS_AT + ROWS * 16 + NPU_LINE / 2
};

typedef struct {
    npu_head head;
    npu_buffer buffer[2]; /* activations and bias; weights */
    npu_tensor t[TENSORS];
    npu_op op[5]; /* map both, input, product, output */
} message;

typedef struct {
    uint32_t wire;
    t32_shape shape;
    uint8_t *tiles;
    float *w;               /* [N][K] as the tiles have it */
    uint16_t *x, *residual; /* with their strides; the residual is where the result comes */
    float bias[N];
} problem;

static problem *make(int type)
{
    problem *p = calloc(1, sizeof *p);
    const quant_info *q = quant_get(types[type].quant);
    const size_t row_bytes = K / (size_t)q->block * (size_t)q->bytes;
    uint8_t *rows = calloc(N, row_bytes);
    rng r;
    rng_seed(&r, 7 + (uint64_t)type);
    p->wire = types[type].wire;
    p->w = calloc(N * K, sizeof *p->w);
    p->x = calloc(ROWS * IN_STRIDE, 2);
    p->residual = calloc(ROWS * OUT_STRIDE, 2);
    for (int i = 0; i < N * K; i++) p->w[i] = (float)rng_unit(&r) - 0.5f;
    q->encode(rows, p->w, N * K);
    q->decode(p->w, rows, N * K);
    assert_true(t32_shape_of(&p->shape, types[type].quant, N, K));
    p->tiles = calloc(1, p->shape.bytes);
    t32_pack(&p->shape, p->tiles, rows, 0, p->shape.stripes);
    free(rows);
    for (int i = 0; i < ROWS; i++) {
        for (int k = 0; k < K; k++) p->x[i * IN_STRIDE + k] = half_from_float((float)rng_unit(&r) - 0.5f);
        for (int n = 0; n < N; n++) p->residual[i * OUT_STRIDE + n] = half_from_float((float)rng_unit(&r));
    }
    for (int n = 0; n < N; n++) p->bias[n] = half_to_float(half_from_float((float)rng_unit(&r)));
    return p;
}

static void drop(problem *p)
{
    free(p->tiles);
    free(p->w);
    free(p->x);
    free(p->residual);
    free(p);
}

static npu_op op_of(npu_op_kind kind)
{
    return (npu_op){
        .kind = kind, .out = -1, .in = -1, .in2 = -1, .weight = -1, .bias = -1, .residual = -1, .keys = -1, .values = -1
    };
}

static message write_message(const problem *p, const npu_shared *own, const npu_shared *weights)
{
    message m = { .head = { .magic = NPU_MAGIC, .version = NPU_VERSION, .bytes = sizeof m, .n_rows = ROWS } };
    m.head.n_buffers = 2;
    m.head.rows = PASS;
    m.head.n_tensors = TENSORS;
    m.head.n_ops = sizeof m.op / sizeof *m.op;
    m.buffer[0] = (npu_buffer){ .id = own->id, .bytes = own->bytes };
    m.buffer[1] = (npu_buffer){ .id = weights->id, .bytes = weights->bytes, .flags = NPU_BUFFER_DMA };
    m.t[X] = (npu_tensor){ .type = NPU_F16, .rows = ROWS, .cols = K, .stride = IN_STRIDE };
    m.t[OUT] = (npu_tensor){ .offset = OUT_AT, .type = NPU_F16, .rows = ROWS, .cols = N, .stride = OUT_STRIDE };
    m.t[W] = (npu_tensor){ .buffer = 1, .type = p->wire, .rows = N, .cols = K };
    m.t[BIAS] = (npu_tensor){ .offset = BIAS_AT, .type = NPU_F32, .rows = 1, .cols = N, .stride = N };
    m.t[PASS] = (npu_tensor){ .offset = PASS_AT, .type = NPU_I32, .rows = 1, .cols = 4 * ROWS, .stride = 4 * ROWS };
    for (int i = 0; i < 2; i++) {
        m.op[i] = op_of(NPU_OP_MAP);
        m.op[i].buffer = (uint32_t)i;
    }
    m.op[2] = op_of(NPU_OP_INPUT);
    m.op[2].in = X;
    m.op[3] = op_of(NPU_OP_MATMUL);
    m.op[3].in = X;
    m.op[3].weight = W;
    m.op[3].bias = BIAS;
    m.op[3].out = m.op[3].residual = OUT;
    m.op[4] = op_of(NPU_OP_OUTPUT);
    m.op[4].in = OUT;
    return m;
}

/* The status; the result in out, [ROWS][OUT_STRIDE]. */
static uint32_t run(const problem *p, uint32_t vtcm, uint32_t contexts, uint16_t *out)
{
    npu_transport *t = NULL;
    npu_shared own, weights;
    npu_reply reply;
    llada_err err;
    const uint32_t bytes = (uint32_t)(p->shape.bytes + NPU_LINE - 1) / NPU_LINE * NPU_LINE;
    if (npu_inproc_open(&t, &(npu_settings){ .vtcm = vtcm, .contexts = contexts }, &err)) fail_msg("%s", err.text);
    assert_int_equal(t->calls->take(t, OWN_BYTES, &own, &err), LLADA_OK);
    assert_int_equal(t->calls->take(t, bytes, &weights, &err), LLADA_OK);
    memcpy(own.at, p->x, ROWS * IN_STRIDE * 2);
    memcpy(own.at + OUT_AT, p->residual, ROWS * OUT_STRIDE * 2);
    memcpy(own.at + BIAS_AT, p->bias, sizeof p->bias);
    memcpy(weights.at, p->tiles, p->shape.bytes);
    const message m = write_message(p, &own, &weights);
    assert_int_equal(t->calls->call(t, &m, sizeof m, &reply, &err), LLADA_OK);
    memcpy(out, own.at + OUT_AT, ROWS * OUT_STRIDE * 2);
    t->calls->give(t, &own);
    t->calls->give(t, &weights);
    t->calls->close(&t);
    return reply.status;
}

static void assert_near(const problem *p, const uint16_t *out)
{
    double worst = 0, most = 0;
    for (int r = 0; r < ROWS; r++) {
        for (int n = 0; n < N; n++) {
            double sum = p->bias[n] + half_to_float(p->residual[r * OUT_STRIDE + n]);
            for (int k = 0; k < K; k++) sum += half_to_float(p->x[r * IN_STRIDE + k]) * (double)p->w[n * K + k];
            worst = fmax(worst, fabs(sum - half_to_float(out[r * OUT_STRIDE + n])));
            most = fmax(most, fabs(sum));
        }
        for (int n = N; n < OUT_STRIDE; n++) assert_int_equal(out[r * OUT_STRIDE + n], 0);
    }
    if (!(worst <= most / 256)) fail_msg("type %u: off by %g of %g", p->wire, worst, most);
}

/* From the least that holds a product to all of it at once: rows and chunks in several ways. */
static void any_threads_any_vtcm(void **state)
{
    static const struct {
        uint32_t row_tiles, chunk;
    } rooms[] = { { 1, 1 }, { 1, 3 }, { 2, 1 }, { 3, 4 }, { 4, 11 } };
    uint16_t *want = calloc(ROWS * OUT_STRIDE, 2), *got = calloc(ROWS * OUT_STRIDE, 2);
    for (int type = 0; type < 3; type++) {
        problem *p = make(type);
        const plan_shape s = { (ROWS + 31) / 32, (N + 31) / 32, K / 32, p->wire };
        uint32_t cuts = 0; /* a bit for each number of readings there was */
        assert_int_equal(run(p, 8 << 20, 1, want), NPU_OK);
        assert_near(p, want);
        for (size_t i = 0; i < sizeof rooms / sizeof *rooms; i++)
            for (uint32_t contexts = 1; contexts <= CONTEXTS; contexts++) {
                const uint32_t vtcm = (uint32_t)plan_bytes(&s, rooms[i].row_tiles, rooms[i].chunk);
                cuts |= 1u << plan_product(&s, vtcm, contexts - 1).readings;
                assert_int_equal(run(p, vtcm, contexts, got), NPU_OK);
                if (memcmp(got, want, ROWS * OUT_STRIDE * 2))
                    fail_msg("type %u, %u bytes, %u contexts: other bits", p->wire, vtcm, contexts);
            }
        assert_true((cuts & (1u << 1)) && (cuts & (1u << 2)) && (cuts & (1u << 4)));
        assert_int_equal(run(p, (uint32_t)plan_bytes(&s, 1, 1) - 1, 4, got), NPU_NO_VTCM);
        drop(p);
    }
    free(want);
    free(got);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_threads_any_vtcm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
