/* transformer.h - what the networks we run have in common: layers of attention and feed-forward with norms before them,
 * rotary positions, a norm and a head behind the last.  An architecture file says what is particular. */
#ifndef MODEL_TRANSFORMER_H
#define MODEL_TRANSFORMER_H

#include "model/build.h"

typedef struct {
    bool qkv_bias; /* biases on queries, keys and values */
    bool qk_norm;  /* queries and keys are normalised head by head before they are rotated */
    tensor_id (*feed_forward)(builder *b, tensor_id x); /* adds to x; NULL: SwiGLU, ffn_gate, ffn_up, ffn_down */
    int more_ops, more_tensors;                         /* of that, in a layer */
} transformer_parts;

llada_status transformer_build(model *m, const transformer_parts *parts, llada_err *err);

#endif
