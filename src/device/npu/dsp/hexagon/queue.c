/* queue.c - see queue.h. */
#include "device/npu/dsp/hexagon/queue.h"

#include "device/npu/dsp/hexagon/hap.h"
#include "device/npu/remote.h"

enum { MOMENT = 100000 }; /* microseconds, after which the thread looks whether it should end */

static bool answer(queue *q, uint32_t bytes)
{
    npu_reply reply;
    dsp_run(q->d, q->packet, bytes, &reply);
    return dspqueue_write(q->end, 0, 0, NULL, sizeof reply, (const uint8_t *)&reply, MOMENT) == 0;
}

/* A queue that fails is left: the host sees that no reply comes. */
static void serve(void *arg)
{
    queue *q = arg;
    bool good = true;
    while (good && !atomic_load(&q->ends)) {
        uint32_t flags, n_buffers, bytes;
        queue_buffer none;
        const int why =
            dspqueue_read(q->end, &flags, 1, &n_buffers, &none, sizeof q->packet, &bytes, q->packet, MOMENT);
        if (queue_failed_as(why, QUEUE_EXPIRED)) continue;
        good = why == 0 && answer(q, bytes);
    }
}

/* The thread comes by its vector context as the one of calls does, by using it.  Where none is left, messages are not
 * answered; were it asked for here, the host would wait in a call. */
int queue_open(queue *q, dsp *d, uint64_t id)
{
    if (!dspqueue_import || !dspqueue_close || !dspqueue_write || !dspqueue_read) return -1;
    const int why = dspqueue_import(id, NULL, NULL, NULL, &q->end);
    if (why) {
        q->end = NULL;
        return why;
    }
    q->d = d;
    atomic_store(&q->ends, false);
    if (port_thread(d->m, MAX_THREADS, false, serve, q)) return 0;
    dspqueue_close(q->end);
    q->end = NULL;
    return -1;
}

void queue_close(queue *q)
{
    if (!q->end) return;
    atomic_store(&q->ends, true);
    port_join(q->d->m, MAX_THREADS);
    dspqueue_close(q->end);
    q->end = NULL;
}
