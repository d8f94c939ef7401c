/* dsp.h - the program that runs on the NPU's scalar core: takes a message, checks it, runs its operators, which share
 * their work among the threads of a team.  Everything it needs beside the port lies in this record. */
#ifndef DSP_DSP_H
#define DSP_DSP_H

#include "device/columns.h"
#include "device/npu/dsp/lanes.h"
#include "device/npu/dsp/team.h"

enum { DSP_CONTEXTS = 4 }; /* vector contexts that every generation has */

typedef struct {
    port *m; /* borrowed */
    team team;
    port_buffer map[NPU_MAX_BUFFERS]; /* mapped now; they stay from message to message */
    uint32_t n_map;

    /* the message at hand */
    const npu_head *head;
    const npu_buffer *buffers;
    const npu_tensor *t;
    const npu_op *ops;
    int32_t where[NPU_MAX_BUFFERS]; /* place in map of each of its buffers; -1: not mapped */
    const int32_t *pos, *slot, *group, *instead;
    pass_cols cols[NPU_GROUPS];
    npu_reply *reply;

    few_row few[PLAN_FEW_ROWS];         /* what few_rows.c multiplies */
    uint32_t copy[NPU_MAX_MESSAGE / 4]; /* of the message: nobody changes it after it was checked */
} dsp;

/* contexts: of the vector unit, the one of the message's thread included; 0: DSP_CONTEXTS.  False: there is no thread
 * for HMX, and nothing to close. */
bool dsp_open(dsp *d, port *m, uint32_t contexts);
void dsp_close(dsp *d); /* ends the threads, unmaps all */
/* Runs a message of so many bytes.  Always fills the reply. */
void dsp_run(dsp *d, const void *message, uint32_t bytes, npu_reply *reply);

/* check.c: the message in d->copy, without looking at any buffer; and the rows of the pass, which lie in one. */
bool dsp_check(dsp *d, uint32_t bytes);
bool dsp_check_rows(const dsp *d);

/* Where a tensor lies for loads and stores; NULL: its buffer is not mapped. */
uint8_t *dsp_at(const dsp *d, int32_t tensor);
/* The mapped buffer of a tensor; NULL: not mapped. */
const port_buffer *dsp_buffer(const dsp *d, int32_t tensor);

/* Operators.  Each returns an npu_status. */
uint32_t dsp_rmsnorm(dsp *d, const npu_op *o);
uint32_t dsp_matmul(dsp *d, const npu_op *o);
bool dsp_takes_few_rows(const dsp *d, const npu_op *o); /* the product is one for dsp_few_rows */
uint32_t dsp_few_rows(dsp *d, const npu_op *o);
uint32_t dsp_rope(dsp *d, const npu_op *o);
uint32_t dsp_kv(dsp *d, const npu_op *o);
uint32_t dsp_attention(dsp *d, const npu_op *o);
uint32_t dsp_swiglu(dsp *d, const npu_op *o);
uint32_t dsp_route(dsp *d, const npu_op *o);
uint32_t dsp_experts(dsp *d, const npu_op *o);

#endif
