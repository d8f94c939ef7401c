/* build.h - the words in which an architecture file writes down its network: each adds one operator (and the weights
 * and the activation it needs) to the model's graph.  The first failure sticks in `st`; later calls then do nothing,
 * so a network is written without a test per line. */
#ifndef MODEL_BUILD_H
#define MODEL_BUILD_H

#include "model/model.h"

enum { NO_TENSOR = -1 };

typedef struct {
    model *m;
    int layer; /* names of weights get "blk.<layer>." in front; -1: none */
    llada_status st;
    llada_err *err;
} builder;

/* Makes the graph: room for so many operators and tensors, and the model's numbers. */
builder b_begin(model *m, int ops, int tensors, llada_err *err);

/* Rows of an embedding or head (its second dimension), checked to cover the vocabulary; more rows are padding. */
int b_vocab_rows(builder *b, const char *name);

tensor_id b_weight(builder *b, int64_t rows, int64_t cols, const char *name);
tensor_id b_embed(builder *b, tensor_id table);
tensor_id b_norm(builder *b, tensor_id in, const char *name);
void b_head_norm(builder *b, tensor_id x, const char *name); /* each head by itself, in place */
/* name: without ".weight".  residual: the result is added to it, in place; or NO_TENSOR. */
tensor_id b_linear(builder *b, tensor_id in, int64_t n_out, const char *name, tensor_id residual);
tensor_id b_linear_bias(builder *b, tensor_id in, int64_t n_out, const char *name); /* with name ".bias" */
tensor_id b_route(builder *b, tensor_id logits); /* one value per row and expert -> which serve it, and how much */
/* Products with the experts of a route; name, residual: as above.  residual NO_TENSOR: one product a serving expert,
 * side by side; else the products of what lies side by side, weighed and added. */
tensor_id b_experts(builder *b, tensor_id in, tensor_id route, int64_t n_out, const char *name, tensor_id residual);
void b_rope(builder *b, tensor_id x, int heads);                          /* in place */
tensor_id b_attention(builder *b, tensor_id q, tensor_id k, tensor_id v); /* stores K,V of the rows, then attends */
tensor_id b_swiglu(builder *b, tensor_id gate, tensor_id up);             /* over gate */
tensor_id b_gather(builder *b, tensor_id in);                             /* rows whose scores are wanted */
void b_score(builder *b, tensor_id in, tensor_id head);

#endif
