/* plan.c - see plan.h. */
#include "device/npu/dsp/plan.h"

/* The model's costs, in picoseconds.  They were published for devices by others (single author), none was measured by
 * us: they choose among ways to cut a product, all of which give the same bits, and nothing may be concluded from
 * their sums. */
enum {
    PS_DMA_BYTE = 17,        /* memory read by DMA: 60 GB/s */
    PS_VECTOR_BYTE = 38,     /* memory read by the vector unit: 26 GB/s */
    PS_EXPAND_TILE = 31030,  /* 1024 products at 33 GFLOPS a thread */
    PS_MULTIPLY_TILE = 5461, /* 2 * 32 * 32 * 32 operations at 12.0 TFLOPS */
    PS_HAND_OVER = 1000000,  /* a thread gets a part and says that it is done: a guess, nobody has published it */
    TILE_OF_HALVES = 2048,   /* bytes */
    TABLE = 256,             /* scales and biases of a stripe */
    MOST_CHUNK = 64,         /* stripes: more would gain nothing */
    MOST_THREADS = 8
};

/* 65536 / n, so that the DSP, which has no instruction for it, need not divide. */
static const uint32_t share_of[MOST_THREADS + 1] = { 0, 65536, 32768, 21846, 16384, 13108, 10923, 9363, 8192 };

static uint64_t stripe_bytes(const plan_shape *s) { return (uint64_t)s->k_tiles * npu_tile_bytes(s->type); }

static uint64_t most(uint64_t a, uint64_t b) { return a > b ? a : b; }

uint64_t plan_bytes(const plan_shape *s, uint32_t row_tiles, uint32_t chunk)
{
    const uint64_t act = (uint64_t)row_tiles * s->k_tiles * TILE_OF_HALVES;
    const uint64_t wide = plan_lag(s->type) * (uint64_t)chunk * s->k_tiles * TILE_OF_HALVES;
    const uint64_t packed = chunk * stripe_bytes(s) + NPU_LINE, result = (uint64_t)chunk * row_tiles * TILE_OF_HALVES;
    return act + 2 * (wide + packed + result) + TABLE + TILE_OF_HALVES;
}

/* One reading of the weights for so many tiles of rows. */
static uint64_t reading_ps(const plan_shape *s, uint32_t row_tiles, uint32_t chunk, uint32_t workers)
{
    const uint64_t tiles = (uint64_t)chunk * s->k_tiles, share = share_of[workers + 1];
    const uint64_t dma = chunk * stripe_bytes(s) * PS_DMA_BYTE;
    const uint64_t matrix = tiles * row_tiles * PS_MULTIPLY_TILE + PS_HAND_OVER;
    const uint64_t expand = plan_lag(s->type) * tiles * PS_EXPAND_TILE;
    const uint64_t out = (uint64_t)chunk * row_tiles * TILE_OF_HALVES * PS_VECTOR_BYTE;
    const uint64_t vector = ((expand + out) >> 16) * share + (uint64_t)workers * PS_HAND_OVER;
    const uint64_t pack = ((uint64_t)row_tiles * s->k_tiles * TILE_OF_HALVES * PS_VECTOR_BYTE >> 16) * share;
    const uint32_t steps = (s->stripes + chunk - 1) / chunk + plan_lag(s->type) + 1;
    return pack + dma + steps * most(dma, most(matrix, vector));
}

uint64_t plan_ps(const plan_shape *s, uint32_t row_tiles, uint32_t chunk, uint32_t workers)
{
    const uint32_t full = (s->row_tiles - 1) / row_tiles; /* readings, the last left out */
    return full * reading_ps(s, row_tiles, chunk, workers) +
           reading_ps(s, s->row_tiles - full * row_tiles, chunk, workers);
}

/* As many tiles of rows as there is room for beside the chunk, dealt out evenly over the readings they need. */
static uint32_t rows_beside(const plan_shape *s, uint32_t vtcm, uint32_t chunk)
{
    const uint64_t none = plan_bytes(s, 0, chunk), tile = plan_bytes(s, 1, chunk) - none;
    if (none + tile > vtcm) return 0;
    const uint32_t room = (uint32_t)((vtcm - none) / tile);
    if (room >= s->row_tiles) return s->row_tiles;
    const uint32_t readings = (s->row_tiles + room - 1) / room;
    return (s->row_tiles + readings - 1) / readings;
}

plan_cut plan_product(const plan_shape *s, uint32_t vtcm, uint32_t workers)
{
    plan_cut best = { 0 };
    for (uint32_t chunk = 1; chunk <= MOST_CHUNK && chunk <= s->stripes; chunk += 1 + chunk / 4) {
        const uint32_t rows = rows_beside(s, vtcm, chunk);
        if (rows == 0) break;
        for (uint32_t w = 0; w <= workers && w < MOST_THREADS; w++) {
            const uint64_t ps = plan_ps(s, rows, chunk, w);
            if (best.row_tiles && best.ps <= ps) continue;
            best = (plan_cut){ .row_tiles = rows, .chunk = chunk, .workers = w, .ps = ps };
        }
    }
    if (best.row_tiles) best.readings = (s->row_tiles + best.row_tiles - 1) / best.row_tiles;
    return best;
}
