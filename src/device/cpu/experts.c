/* experts.c - mixtures of experts: which experts serve a row, and products with the matrices of those.  Rows are
 * grouped by expert over the whole pass, so that an expert's matrix is read once however many rows it serves; each
 * row's product is its own (see kern.h), and its parts are added by rising number of the expert: a row's result does
 * not depend on which other rows share the pass. */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "format/t32.h"

/* softmax over all experts in double; the `used` best with their probabilities, not made to add up to 1 again. */
static void route_row(const op *o, float *out, const float *in)
{
    double max = in[0], sum = 0;
    int n = 0;

    for (int e = 1; e < o->experts; e++) max = in[e] > max ? in[e] : max;
    for (int e = 0; e < o->experts; e++) {
        sum += exp(in[e] - max);
        int at = n < o->used ? n++ : o->used; /* at == used: would fall off the end */
        while (at > 0 && in[e] > in[(int)out[at - 1]]) {
            if (at < o->used) out[at] = out[at - 1];
            at--;
        }
        if (at < o->used) out[at] = (float)e;
    }
    for (int i = 0; i < o->used; i++) out[o->used + i] = (float)(exp(in[(int)out[i]] - max) / sum);
}

void cpu_route(const device_ctx *c, int n, const op *o, float *out, const float *in)
{
    for (int r = 0; r < n; r++)
        route_row(o, out + (size_t)r * 2 * (size_t)o->used, in + (size_t)r * (size_t)o->experts);
}

void cpu_experts_size(const graph *g, size_t *in, size_t *out)
{
    *in = *out = 0;
    for (int i = 0; i < g->n_ops; i++) {
        const op *o = &g->ops[i];
        if (o->kind != OP_EXPERTS) continue;
        size_t k = (size_t)g->t[o->weight].cols, n = (size_t)g->t[o->weight].n_rows / (size_t)o->experts;
        *in = k > *in ? k : *in;
        *out = n > *out ? n : *out;
    }
}

/* The rows that expert e serves, and as the how-manieth of each; ascending.  Returns how many. */
static int rows_of_expert(const device_ctx *c, int n, const op *o, const float *route, int e)
{
    int32_t *row = c->served_rows, *nth = row + c->lim.max_rows;
    int count = 0;

    for (int r = 0; r < n; r++) {
        const float *chosen = route + (size_t)r * 2 * (size_t)o->used;
        for (int i = 0; i < o->used; i++)
            if ((int)chosen[i] == e) {
                row[count] = r;
                nth[count++] = i;
            }
    }
    return count;
}

void cpu_experts(const device_ctx *c, int n, const op *o, const tensor *w, int first, float *out, const float *in,
                 const float *route, const float *residual)
{
    const size_t rows = (size_t)c->g->t[o->weight].n_rows / (size_t)o->experts, k = (size_t)w->cols,
                 used = (size_t)o->used;
    const int32_t *row = c->served_rows, *nth = row + c->lim.max_rows;

    t32_shape packed = { .bytes = 0 };
    size_t matrix_bytes = rows * w->row_bytes;
    if (w->layout == LAYOUT_T32 && t32_shape_of(&packed, w->type, rows, k)) matrix_bytes = packed.bytes;

    if (first == 0 && residual && residual != out) memcpy(out, residual, (size_t)n * rows * sizeof *out);
    for (int e = first; e < first + (int)((size_t)w->n_rows / rows); e++) {
        int count = rows_of_expert(c, n, o, route, e);
        if (count == 0) continue;
        tensor one = *w; /* the expert's own matrix */
        one.n_rows = (int64_t)rows;
        one.data = (const uint8_t *)w->data + (size_t)(e - first) * matrix_bytes;
        for (int i = 0; i < count; i++) {
            size_t from = residual ? (size_t)row[i] * used + (size_t)nth[i] : (size_t)row[i];
            memcpy(c->gathered + (size_t)i * k, in + from * k, k * sizeof *in);
        }
        cpu_matmul(c, c->served, c->gathered, count, &one);
        for (int i = 0; i < count; i++) {
            const float *y = c->served + (size_t)i * rows;
            if (!residual) {
                memcpy(out + ((size_t)row[i] * used + (size_t)nth[i]) * rows, y, rows * sizeof *y);
                continue;
            }
            float *to = out + (size_t)row[i] * rows, p = route[(size_t)row[i] * 2 * used + used + (size_t)nth[i]];
            for (size_t j = 0; j < rows; j++) to[j] += p * y[j];
        }
    }
}
