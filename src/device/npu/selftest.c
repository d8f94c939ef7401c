/* selftest.c - known answers before the first pass: every kernel of the DSP on a few rows and more than a tile of them,
 * against plain loops here.  A device on which one is wrong is not used. */
#include <math.h>
#include <string.h>

#include "base/half.h"
#include "base/mem.h"
#include "device/npu/dsp/plan.h"
#include "device/npu/inside.h"
#include "format/t32.h"

enum { MOST = 33, IN = 64, OUT = 96, HEADS = 2, WIDTH = IN / HEADS, SLOTS = 40, OPS = 10 };
enum { EXPERTS = 3, USED = 2, PART = OUT / EXPERTS }; /* the weights as experts' */
static const int row_counts[] = { 1, 2, 4, 5, 31, 32, 33 };
static const double tolerance = 1.0 / 256; /* of the largest value; results are half floats of 11 bits */

enum { ROWS, X, Y, Z, GAIN, BIAS, TURN, W_F16, W_Q8, W_Q4, KEYS, VALUES };
enum { GATE = VALUES + 1, CHOICE, PARTS, JOINED, ROOM_IN, ROOM_OUT, SUMS, TENSORS }; /* of mixtures */
static const int inputs[] = { X, Y, Z, GATE, PARTS, JOINED }, made[] = { CHOICE, ROOM_IN, ROOM_OUT, SUMS };
enum { N_INPUTS = sizeof inputs / sizeof *inputs, N_MADE = sizeof made / sizeof *made };

typedef struct {
    device_weights *w;
    npu_region region;
    npu_tensor t[TENSORS];
    float weight[3][OUT * IN]; /* of the W_s, as their packed values are */
    double want[MOST * OUT];
    uint8_t message[sizeof(npu_head) + sizeof(npu_buffer) + TENSORS * sizeof(npu_tensor) + OPS * sizeof(npu_op)];
} trial;

/* A value between -1 and 1 that depends on which array and where. */
static float value(int array, int i) { return (float)((i * 37 + array * 61 + 11) % 127 - 63) / 64.0f; }

/* As it comes out of a half float. */
static float rounded(int array, int i) { return half_to_float(half_from_float(value(array, i))); }

/* ------------------------------------------------------------ the buffer */

static uint8_t *at(const trial *q, int id) { return q->region.s.at + q->t[id].offset; }

static uint32_t place(trial *q, int id, uint32_t used, npu_tensor t, size_t bytes)
{
    q->t[id] = t;
    q->t[id].offset = used;
    return (used + (uint32_t)bytes + NPU_LINE - 1) / NPU_LINE * NPU_LINE;
}

static uint32_t halves(trial *q, int id, uint32_t used, uint32_t rows, uint32_t cols)
{
    const npu_tensor t = { .type = NPU_F16, .rows = rows, .cols = cols, .stride = npu_stride(cols) };
    return place(q, id, used, t, (size_t)rows * t.stride * 2);
}

static uint32_t floats(trial *q, int id, uint32_t used, uint32_t rows, uint32_t cols)
{
    const npu_tensor t = { .type = NPU_F32, .rows = rows, .cols = cols, .stride = cols };
    return place(q, id, used, t, (size_t)rows * cols * 4);
}

static uint32_t tiles(trial *q, int id, uint32_t used, uint32_t type)
{
    const npu_tensor t = { .type = type, .rows = OUT, .cols = IN };
    return place(q, id, used, t, (size_t)(OUT / 32) * (IN / 32) * npu_tile_bytes(type));
}

static uint32_t lay_out(trial *q)
{
    const npu_tensor rows = {
        .type = NPU_I32, .rows = 1, .cols = 4 * MOST + 2 * SLOTS, .stride = 4 * MOST + 2 * SLOTS
    };
    uint32_t used = place(q, ROWS, 0, rows, sizeof(int32_t) * rows.cols);
    used = halves(q, X, used, MOST, IN);
    used = halves(q, Y, used, MOST, OUT);
    used = halves(q, Z, used, MOST, IN);
    used = floats(q, GAIN, used, 1, IN);
    used = floats(q, BIAS, used, 1, OUT);
    used = floats(q, TURN, used, SLOTS, WIDTH);
    used = tiles(q, W_F16, used, NPU_T32_F16);
    used = tiles(q, W_Q8, used, NPU_T32_Q8_0);
    used = tiles(q, W_Q4, used, NPU_T32_Q4_0);
    used = halves(q, KEYS, used, SLOTS, IN);
    used = halves(q, VALUES, used, SLOTS, IN);
    used = halves(q, GATE, used, MOST, EXPERTS);
    used = halves(q, CHOICE, used, MOST, 2 * USED);
    used = halves(q, PARTS, used, MOST, USED * IN);
    used = halves(q, JOINED, used, MOST, PART);
    used = halves(q, ROOM_IN, used, MOST, IN);
    used = halves(q, ROOM_OUT, used, MOST, PART);
    return floats(q, SUMS, used, MOST, npu_stride(PART));
}

static bool fill_weights(trial *q)
{
    static const uint32_t types[] = { QT_F16, QT_Q8_0, QT_Q4_0 };
    float plain[OUT * IN];
    uint8_t rows[OUT * IN * 2];
    for (int i = 0; i < OUT * IN; i++) plain[i] = value(W_F16, i) / 4;
    for (int k = 0; k < 3; k++) {
        const quant_info *type = quant_get(types[k]);
        t32_shape s;
        if (!t32_shape_of(&s, types[k], OUT, IN)) return false;
        type->encode(rows, plain, OUT * IN);
        type->decode(q->weight[k], rows, OUT * IN);
        t32_pack(&s, at(q, W_F16 + k), rows, 0, s.stripes);
    }
    return true;
}

static void fill_vectors(const trial *q)
{
    float *gain = (float *)(void *)at(q, GAIN), *bias = (float *)(void *)at(q, BIAS),
          *turn = (float *)(void *)at(q, TURN);
    for (int i = 0; i < IN; i++) gain[i] = 1 + value(GAIN, i) / 2;
    for (int i = 0; i < OUT; i++) bias[i] = rounded(BIAS, i);
    for (int p = 0; p < SLOTS; p++)
        for (int i = 0; i < WIDTH / 2; i++) {
            turn[p * WIDTH + i] = (float)cos(p * 0.1 * (i + 1));
            turn[p * WIDTH + i + WIDTH / 2] = (float)sin(p * 0.1 * (i + 1));
        }
}

static void fill_halves(const trial *q, int id)
{
    uint16_t *to = (uint16_t *)(void *)at(q, id);
    const npu_tensor *t = &q->t[id];
    for (uint32_t r = 0; r < t->rows; r++)
        for (uint32_t c = 0; c < t->stride; c++)
            to[r * t->stride + c] = c < t->cols ? half_from_float(value(id, (int)(r * t->cols + c))) : 0;
}

/* Row r is at position r + 2 and writes slot r + 1.  The columns are positions 0 to 3 in the last slots, so that two
 * rows stand in for one. */
static int32_t pos_of(int r) { return r + 2; }
static int32_t slot_of(int r) { return r + 1; }
static int32_t column_slot(int i) { return SLOTS - 1 - i; }
enum { COLS = 4 };

static void fill_rows(trial *q, int n)
{
    int32_t *to = (int32_t *)(void *)at(q, ROWS);
    for (int r = 0; r < n; r++) {
        to[r] = pos_of(r);
        to[n + r] = slot_of(r);
        to[2 * n + r] = 0;
        to[3 * n + r] = -1;
    }
    to += 4 * n;
    for (int i = 0; i < COLS; i++) {
        to[i] = column_slot(i);
        to[COLS + i] = i;
    }
    q->t[ROWS].cols = q->t[ROWS].stride = (uint32_t)(4 * n + 2 * COLS);
}

/* ------------------------------------------------------------ answers */

static double x_of(int r, int i) { return rounded(X, r * IN + i); }

static void want_norm(trial *q, int n)
{
    for (int r = 0; r < n; r++) {
        double sum = 0;
        for (int i = 0; i < IN; i++) sum += x_of(r, i) * x_of(r, i);
        for (int i = 0; i < IN; i++)
            q->want[r * IN + i] = x_of(r, i) / sqrt(sum / IN + 1e-5) * (1 + value(GAIN, i) / 2);
    }
}

/* As 8-bit integers have it: steps of 1/127 of the largest of its 32. */
static double x_in_steps(int r, int i)
{
    double largest = 0;
    for (int k = i / 32 * 32; k < i / 32 * 32 + 32; k++) largest = fmax(largest, fabs(x_of(r, k)));
    return round(x_of(r, i) * 127 / largest) * largest / 127;
}

static void want_product(trial *q, int n, int which, bool in_steps)
{
    for (int r = 0; r < n; r++)
        for (int o = 0; o < OUT; o++) {
            double sum = rounded(BIAS, o) + rounded(Y, r * OUT + o);
            for (int i = 0; i < IN; i++)
                sum += (in_steps ? x_in_steps(r, i) : x_of(r, i)) * q->weight[which][o * IN + i];
            q->want[r * OUT + o] = sum;
        }
}

static void want_turned(trial *q, int n, bool in_halves)
{
    for (int r = 0; r < n; r++)
        for (int h = 0; h < HEADS; h++)
            for (int i = 0; i < WIDTH / 2; i++) {
                const int a = h * WIDTH + (in_halves ? i : 2 * i), b = in_halves ? a + WIDTH / 2 : a + 1;
                const double c = cos(pos_of(r) * 0.1 * (i + 1)), s = sin(pos_of(r) * 0.1 * (i + 1));
                q->want[r * IN + a] = x_of(r, a) * c - x_of(r, b) * s;
                q->want[r * IN + b] = x_of(r, a) * s + x_of(r, b) * c;
            }
}

static void want_swiglu(trial *q, int n)
{
    for (int i = 0; i < n * IN; i++) {
        const double g = rounded(X, i);
        q->want[i] = g / (1 + exp(-g)) * rounded(Z, i);
    }
}

/* Queries are x, keys z, values x.  A row sees the columns and itself, which stands in for
 * a column at its position; where causal, none behind its position. */
static void want_attention(trial *q, int n, bool causal)
{
    for (int r = 0; r < n; r++)
        for (int h = 0; h < HEADS; h++) {
            double sum = 0, *out = &q->want[r * IN + h * WIDTH];
            memset(out, 0, WIDTH * sizeof *out);
            for (int c = 0; c <= COLS; c++) {
                if (c < COLS && (c == pos_of(r) || (causal && c > pos_of(r)))) continue;
                const int slot = column_slot(c) * IN + h * WIDTH, own = r * IN + h * WIDTH;
                double dot = 0;
                for (int i = 0; i < WIDTH; i++)
                    dot += x_of(r, h * WIDTH + i) * (c < COLS ? rounded(KEYS, slot + i) : rounded(Z, own + i));
                const double p = exp(dot / sqrt(WIDTH));
                sum += p;
                for (int i = 0; i < WIDTH; i++)
                    out[i] += p * (c < COLS ? rounded(VALUES, slot + i) : rounded(X, own + i));
            }
            for (int i = 0; i < WIDTH; i++) out[i] /= sum;
        }
}

/* Number and probability of the experts that serve row r, the likelier first. */
static void choice(int r, int *number, double *p)
{
    double sum = 0;
    for (int e = 0; e < EXPERTS; e++) sum += exp(rounded(GATE, r * EXPERTS + e));
    for (int i = 0; i < USED; i++) {
        number[i] = i == 0 || number[0] != 0 ? 0 : 1;
        for (int e = 0; e < EXPERTS; e++)
            if ((i == 0 || e != number[0]) && rounded(GATE, r * EXPERTS + e) > rounded(GATE, r * EXPERTS + number[i]))
                number[i] = e;
        p[i] = exp(rounded(GATE, r * EXPERTS + number[i])) / sum;
    }
}

static void want_choice(trial *q, int n)
{
    for (int r = 0; r < n; r++) {
        int number[USED];
        choice(r, number, &q->want[r * 2 * USED + USED]);
        for (int i = 0; i < USED; i++) q->want[r * 2 * USED + i] = number[i];
    }
}

/* Output o of an expert for the values of `array` from `first` on. */
static double served(const trial *q, int which, int expert, int o, int array, int first)
{
    double sum = 0;
    for (int i = 0; i < IN; i++) sum += rounded(array, first + i) * q->weight[which][(expert * PART + o) * IN + i];
    return sum;
}

static void want_experts(trial *q, int n, bool join)
{
    for (int r = 0; r < n; r++) {
        int number[USED];
        double p[USED];
        choice(r, number, p);
        for (int o = 0; o < PART; o++) {
            double *out = join ? &q->want[r * PART + o] : &q->want[r * USED * PART + o];
            if (join) *out = rounded(JOINED, r * PART + o);
            for (int i = 0; i < USED; i++)
                if (join)
                    *out += p[i] * served(q, W_Q4 - W_F16, number[i], o, PARTS, (r * USED + i) * IN);
                else
                    out[i * PART] = served(q, W_Q8 - W_F16, number[i], o, X, r * IN);
        }
    }
}

/* ------------------------------------------------------------ one kernel on n rows */

typedef enum {
    NORM,
    F16,
    Q8,
    Q4,
    FEW_Q8,
    FEW_Q4,
    PAIRS,
    HALVES,
    SEE_ALL,
    SEE_BEHIND,
    SWIGLU,
    ROUTE,
    SPREAD,
    JOIN,
    KERNELS
} kernel;
static const char *const kernel_words[] = { "norm",
                                            "product with F16",
                                            "product with Q8_0",
                                            "product with Q4_0",
                                            "product in integers with Q8_0",
                                            "product in integers with Q4_0",
                                            "rope of pairs",
                                            "rope of halves",
                                            "attention",
                                            "causal attention",
                                            "SwiGLU",
                                            "choice of experts",
                                            "products with experts",
                                            "sum of experts" };
static bool is_few(kernel k) { return k == FEW_Q8 || k == FEW_Q4; }

static npu_op op_of(npu_op_kind kind)
{
    return (npu_op){
        .kind = kind, .out = -1, .in = -1, .in2 = -1, .weight = -1, .bias = -1, .residual = -1, .keys = -1, .values = -1
    };
}

/* The weights that a product takes, of the three. */
static int weight_of(kernel k) { return is_few(k) ? (int)k - FEW_Q8 + Q8 - F16 : (int)k - F16; }

/* The operators that run kernel k, and the tensor that they leave the result in. */
static int kernel_ops(kernel k, npu_op *o, int *result)
{
    const float eps = 1e-5f;
    o[0] = op_of(k == NORM ? NPU_OP_RMSNORM : k <= FEW_Q4 ? NPU_OP_MATMUL : k <= HALVES ? NPU_OP_ROPE : NPU_OP_SWIGLU);
    o[0].in = X;
    *result = Z;
    switch (k) {
    case NORM:
        o[0].out = Z;
        o[0].weight = GAIN;
        memcpy(&o[0].eps, &eps, sizeof eps);
        return 1;
    case F16:
    case Q8:
    case Q4:
    case FEW_Q8:
    case FEW_Q4:
        o[0].weight = W_F16 + weight_of(k);
        o[0].bias = BIAS;
        o[0].out = o[0].residual = *result = Y;
        return 1;
    case PAIRS:
    case HALVES:
        o[0].weight = TURN;
        o[0].width = WIDTH;
        o[0].heads = HEADS;
        o[0].flags = k == HALVES ? NPU_HALVES : 0;
        *result = X;
        return 1;
    case SWIGLU: o[0].in2 = o[0].out = Z; return 1;
    case ROUTE:
    case SPREAD:
    case JOIN:
        o[0] = op_of(NPU_OP_ROUTE);
        o[0].in = GATE;
        o[0].out = *result = CHOICE;
        if (k != ROUTE) {
            o[1] = op_of(NPU_OP_EXPERTS);
            o[1].in = k == JOIN ? PARTS : X;
            o[1].out = *result = k == JOIN ? JOINED : Z;
            o[1].residual = k == JOIN ? JOINED : -1;
            o[1].bias = k == JOIN ? SUMS : -1;
            o[1].weight = k == JOIN ? W_Q4 : W_Q8;
            o[1].in2 = CHOICE;
            o[1].keys = ROOM_IN;
            o[1].values = ROOM_OUT;
        }
        o[0].heads = o[1].heads = EXPERTS;
        o[0].kv_heads = o[1].kv_heads = USED;
        return k == ROUTE ? 1 : 2;
    default:
        o[0] = op_of(NPU_OP_KV);
        o[0].in = Z;
        o[0].in2 = X;
        o[1] = op_of(NPU_OP_ATTENTION);
        o[1].in = X;
        o[1].out = Z;
        o[1].width = WIDTH;
        o[1].heads = HEADS;
        o[1].kv_heads = HEADS;
        o[1].flags = k == SEE_BEHIND ? NPU_CAUSAL : 0;
        o[0].keys = o[1].keys = KEYS;
        o[0].values = o[1].values = VALUES;
        return 2;
    }
}

static void want(trial *q, kernel k, int n)
{
    const uint32_t type = k == FEW_Q4 ? NPU_T32_Q4_0 : NPU_T32_Q8_0;
    switch (k) {
    case NORM: want_norm(q, n); return;
    case F16:
    case Q8:
    case Q4: want_product(q, n, weight_of(k), false); return;
    case FEW_Q8:
    case FEW_Q4: want_product(q, n, weight_of(k), plan_in_integers((uint32_t)n, IN / 32, type)); return;
    case PAIRS:
    case HALVES: want_turned(q, n, k == HALVES); return;
    case SWIGLU: want_swiglu(q, n); return;
    case ROUTE: want_choice(q, n); return;
    case SPREAD:
    case JOIN: want_experts(q, n, k == JOIN); return;
    default: want_attention(q, n, k == SEE_BEHIND); return;
    }
}

static void write_message(trial *q, uint32_t flags, const npu_op *ops, int n_ops, int result, int n)
{
    npu_head *h = (npu_head *)(void *)q->message;
    *h = (npu_head){ .magic = NPU_MAGIC, .version = NPU_VERSION, .n_buffers = 1, .n_tensors = TENSORS, .rows = ROWS };
    h->flags = flags;
    h->n_rows = (uint32_t)n;
    h->n_cols[0] = COLS;
    h->slots = h->positions = SLOTS;
    npu_buffer *b = (npu_buffer *)(void *)(h + 1);
    *b = (npu_buffer){ .id = q->region.s.id, .bytes = q->region.s.bytes };
    npu_tensor *t = (npu_tensor *)(void *)(b + 1);
    memcpy(t, q->t, sizeof q->t);
    for (int i = 0; i < N_INPUTS; i++) t[inputs[i]].rows = (uint32_t)n;
    for (int i = 0; i < N_MADE; i++) t[made[i]].rows = (uint32_t)n;
    npu_op *to = (npu_op *)(void *)(t + TENSORS), *first = to;
    *to++ = op_of(NPU_OP_MAP); /* buffer 0 */
    for (int i = 0; i < N_INPUTS; i++, to++) {
        *to = op_of(NPU_OP_INPUT);
        to->in = inputs[i];
    }
    for (int i = 0; i < n_ops; i++) *to++ = ops[i];
    *to = op_of(NPU_OP_OUTPUT);
    to++->in = result;
    h->n_ops = (uint32_t)(to - first);
    h->bytes = (uint32_t)((uint8_t *)to - q->message);
}

/* The result that arrived, against the answer and the checksum. */
static llada_status compare(const trial *q, kernel k, int result, int n, uint32_t sum, llada_err *err)
{
    const npu_tensor *t = &q->t[result];
    const uint16_t *got = (const uint16_t *)(const void *)at(q, result);
    npu_sum mine = { 0, 0 };
    double most = 0, worst = 0;
    for (uint32_t r = 0; r < (uint32_t)n; r++) {
        npu_sum_add(&mine, got + r * t->stride, t->cols);
        for (uint32_t c = 0; c < t->cols; c++) {
            const double answer = q->want[r * t->cols + c], off = fabs(half_to_float(got[r * t->stride + c]) - answer);
            most = fabs(answer) > most ? fabs(answer) : most;
            worst = off <= worst ? worst : off; /* NaN is worst */
        }
    }
    if (!(worst <= tolerance * most))
        return llada_fail(err, LLADA_NUMERIC, "%s of %d rows is off by %g of %g", kernel_words[k], n, worst, most);
    if (npu_sum_end(&mine) != sum)
        return llada_fail(err, LLADA_IO, "%s of %d rows did not arrive as it was computed", kernel_words[k], n);
    return LLADA_OK;
}

static llada_status run_kernel(trial *q, kernel k, int n, llada_err *err)
{
    npu_op ops[2];
    npu_reply reply;
    int result;
    const int n_ops = kernel_ops(k, ops, &result);
    for (int i = 0; i < N_INPUTS; i++) fill_halves(q, inputs[i]);
    fill_rows(q, n);
    write_message(q, is_few(k) ? NPU_FEW_ROWS : 0, ops, n_ops, result, n);
    want(q, k, n);
    llada_status st = npu_call(q->w, q->message, &reply, err);
    return st ? st : compare(q, k, result, n, reply.sum[0], err);
}

static llada_status let_go(trial *q, llada_err *err)
{
    npu_reply reply;
    npu_head *h = (npu_head *)(void *)q->message;
    *h = (npu_head){ .magic = NPU_MAGIC, .version = NPU_VERSION, .n_buffers = 1, .n_ops = 1, .rows = -1 };
    npu_buffer *b = (npu_buffer *)(void *)(h + 1);
    npu_op *o = (npu_op *)(void *)(b + 1);
    *o = op_of(NPU_OP_UNMAP);
    h->bytes = (uint32_t)((uint8_t *)(o + 1) - q->message);
    return npu_call(q->w, q->message, &reply, err);
}

llada_status npu_selftest(device_weights *w, llada_err *err)
{
    trial *q = mem_new(sizeof *q);
    if (!q) return llada_fail(err, LLADA_NO_MEMORY, "no memory for the self-test");
    q->w = w;
    llada_status st = npu_region_take(w, &q->region, lay_out(q), 0, -1, err);
    if (st == LLADA_OK && !fill_weights(q))
        st = llada_fail(err, LLADA_UNSUPPORTED, "the self-test's weights don't pack");
    if (st == LLADA_OK) {
        fill_vectors(q);
        fill_halves(q, KEYS);
        fill_halves(q, VALUES);
    }
    for (int k = 0; st == LLADA_OK && k < KERNELS; k++)
        for (size_t i = 0; st == LLADA_OK && i < sizeof row_counts / sizeof *row_counts; i++)
            st = run_kernel(q, (kernel)k, row_counts[i], err);
    if (st == LLADA_OK) st = let_go(q, err);
    npu_region_give(w, &q->region);
    mem_free(q);
    return st;
}
