/* skel.c - the device's entry point: what the vendor's remote calls arrive at (remote.h).  One session a process. */
#include <string.h>

#include "device/npu/dsp/hexagon/port_device.h"
#include "device/npu/dsp/hexagon/queue.h"
#include "device/npu/remote.h"

typedef struct {
    void *at;
    uint32_t bytes;
} remote_arg;

enum { FAILED = 1, UNSUPPORTED = 20 };

static port machine;
static dsp program;
static queue messages;
static int users;

static int open_session(void)
{
    if (users > 0) return FAILED;
    if (port_open(&machine)) return FAILED;
    if (!dsp_open(&program, &machine, 0)) {
        port_close(&machine);
        return FAILED;
    }
    users = 1;
    return 0;
}

static int close_session(void)
{
    if (users == 0) return FAILED;
    queue_close(&messages);
    dsp_close(&program);
    port_close(&machine);
    users = 0;
    return 0;
}

static int start(const void *id_at)
{
    uint64_t id;
    if (users == 0 || messages.end) return FAILED;
    memcpy(&id, id_at, sizeof id);
    return queue_open(&messages, &program, id);
}

/* scalars: method in bits 24 to 28, then numbers of input and output buffers. */
__attribute__((visibility("default"))) int llada_npu_skel_handle_invoke(uint64_t handle, uint32_t scalars,
                                                                        remote_arg *args);

int llada_npu_skel_handle_invoke(uint64_t handle, uint32_t scalars, remote_arg *args)
{
    const uint32_t method = scalars >> 24 & 31, inputs = scalars >> 16 & 255, outputs = scalars >> 8 & 255;
    switch (method) {
    case REMOTE_OPEN: {
        const int failed = open_session();
        if (!failed) *(uint64_t *)args[inputs].at = 1; /* the handle */
        return failed;
    }
    case REMOTE_CLOSE: return close_session();
    case REMOTE_MESSAGE:
        if (users == 0 || messages.end || inputs != 1 || outputs != 1 || args[1].bytes < sizeof(npu_reply))
            return FAILED;
        dsp_run(&program, args[0].at, args[0].bytes, args[1].at);
        return 0;
    case REMOTE_START: return inputs == 1 && args[0].bytes == sizeof(uint64_t) ? start(args[0].at) : FAILED;
    case REMOTE_STOP: queue_close(&messages); return 0;
    default: return UNSUPPORTED;
    }
}
