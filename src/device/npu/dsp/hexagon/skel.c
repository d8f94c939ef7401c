/* skel.c - the device's entry point: what the vendor's remote calls arrive at.  Method 0 opens, 1 closes, 2 takes a
 * message and gives a reply.  One session a process. */
#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/hexagon/port_device.h"

typedef struct {
    void *at;
    uint32_t bytes;
} remote_arg;

enum { OPEN, CLOSE, MESSAGE, FAILED = 1, UNSUPPORTED = 20 };

static port machine;
static dsp program;
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
    dsp_close(&program);
    port_close(&machine);
    users = 0;
    return 0;
}

/* scalars: method in bits 24 to 28, then numbers of input and output buffers. */
__attribute__((visibility("default"))) int llada_npu_skel_handle_invoke(uint64_t handle, uint32_t scalars,
                                                                        remote_arg *args);

int llada_npu_skel_handle_invoke(uint64_t handle, uint32_t scalars, remote_arg *args)
{
    const uint32_t method = scalars >> 24 & 31, inputs = scalars >> 16 & 255, outputs = scalars >> 8 & 255;
    switch (method) {
    case OPEN: {
        const int failed = open_session();
        if (!failed) *(uint64_t *)args[inputs].at = 1; /* the handle */
        return failed;
    }
    case CLOSE: return close_session();
    case MESSAGE:
        if (users == 0 || inputs != 1 || outputs != 1 || args[1].bytes < sizeof(npu_reply)) return FAILED;
        dsp_run(&program, args[0].at, args[0].bytes, args[1].at);
        return 0;
    default: return UNSUPPORTED;
    }
}
