/* pool.h - a pool of threads that run one function over parts.  Part t of n always gets the same share of the work, so
 * results do not depend on timing; nothing is stolen or re-ordered. */
#ifndef BASE_POOL_H
#define BASE_POOL_H

#include "base/err.h"

typedef struct pool pool;

/* fn(user, t, n): the share of thread t (0 <= t < n).  The caller runs part 0. */
typedef void (*pool_fn)(void *user, int t, int n);

/* When a thread can't be created the pool has fewer, never fails for that; pool_threads says how many. */
llada_status pool_open(pool **out, int threads, llada_err *err);
int pool_threads(const pool *p);
void pool_run(pool *p, pool_fn fn, void *user); /* returns when every part is done; allocates nothing */
void pool_close(pool **p);

/* The rows [*lo, *hi) of part t of n when `total` rows are dealt out in whole groups of `unit`. */
static inline void pool_share(int total, int unit, int t, int n, int *lo, int *hi)
{
    int64_t groups = ((int64_t)total + unit - 1) / unit;
    int64_t a = groups * t / n * unit, b = groups * (t + 1) / n * unit;
    *lo = a < total ? (int)a : total;
    *hi = b < total ? (int)b : total;
}

#endif
