/* cdsprpc.c - a stand-in for the vendor's libcdsprpc.so: the same names, behind which the DSP code runs in this process
 * on the strict emulation.  FAKE_CDSPRPC in the environment says what goes wrong, "open=0x80000406" for instance: the
 * function's result; call=N:RESULT fails the N-th message.  Compiled with FAKE_OLD it has no rpcmem_alloc2, as older
 * libraries. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/emulate.h"
#include "device/npu/host_threads.h"

#define EXPORT __attribute__((visibility("default")))

enum { MAX_BUFFERS = 64, VTCM = 1 << 20, FIRST_FD = 100 };

typedef union {
    struct {
        void *at;
        size_t bytes;
    } buffer;
    uint64_t pad[2];
} remote_arg;

EXPORT int remote_session_control(uint32_t what, void *data, uint32_t bytes);
EXPORT int remote_handle_control(uint32_t what, void *data, uint32_t bytes);
EXPORT int remote_handle64_control(uint64_t handle, uint32_t what, void *data, uint32_t bytes);
EXPORT int remote_handle64_open(const char *uri, uint64_t *handle);
EXPORT int remote_handle64_close(uint64_t handle);
EXPORT int remote_handle64_invoke(uint64_t handle, uint32_t scalars, remote_arg *args);
EXPORT void *rpcmem_alloc(int heap, uint32_t flags, int bytes);
EXPORT void rpcmem_free(void *p);
EXPORT int rpcmem_to_fd(void *p);
EXPORT int fastrpc_mmap(int domain, int fd, void *at, int offset, size_t bytes, int flags);
EXPORT int fastrpc_munmap(int domain, int fd, void *at, size_t bytes);
#ifndef FAKE_OLD
EXPORT void *rpcmem_alloc2(int heap, uint32_t flags, size_t bytes);
#endif

static struct {
    void *at;
    size_t bytes;
    bool registered;
} buffers[MAX_BUFFERS];
static bool may_load;
static port machine;
static dsp program;
static host_threads threads;
static void *vtcm;
static unsigned messages;

/* The planted result of a function; 0: none. */
static int planted(const char *function)
{
    const char *all = getenv("FAKE_CDSPRPC"), *at = all ? strstr(all, function) : NULL;
    return at && at[strlen(function)] == '=' ? (int)strtoul(at + strlen(function) + 1, NULL, 0) : 0;
}

/* ------------------------------------------------------------ memory */

void *rpcmem_alloc(int heap, uint32_t flags, int bytes)
{
    if (heap != 25 || bytes <= 0 || planted("alloc")) return NULL;
    for (int i = 0; i < MAX_BUFFERS; i++)
        if (!buffers[i].at) {
            buffers[i].at = aligned_alloc(4096, ((size_t)bytes + 4095) / 4096 * 4096);
            buffers[i].bytes = (size_t)bytes;
            return buffers[i].at;
        }
    return NULL;
}
#ifndef FAKE_OLD
void *rpcmem_alloc2(int heap, uint32_t flags, size_t bytes) { return rpcmem_alloc(heap, flags, (int)bytes); }
#endif

void rpcmem_free(void *p)
{
    for (int i = 0; i < MAX_BUFFERS; i++)
        if (buffers[i].at == p) buffers[i].at = NULL;
    free(p);
}

int rpcmem_to_fd(void *p)
{
    for (int i = 0; i < MAX_BUFFERS; i++)
        if (buffers[i].at == p) return FIRST_FD + i;
    return -1;
}

/* Only delayed registrations: others would take addresses at once. */
int fastrpc_mmap(int domain, int fd, void *at, int offset, size_t bytes, int flags)
{
    const int i = fd - FIRST_FD;
    if (planted("mmap")) return planted("mmap");
    if (domain != 3 || flags != 3 || offset || i < 0 || i >= MAX_BUFFERS || buffers[i].at != at) return 0x8000040d;
    buffers[i].registered = true;
    return 0;
}

int fastrpc_munmap(int domain, int fd, void *at, size_t bytes)
{
    const int i = fd - FIRST_FD;
    if (i < 0 || i >= MAX_BUFFERS || buffers[i].at != at) return 0x8000040d;
    buffers[i].registered = false;
    return 0;
}

/* ------------------------------------------------------------ the DSP's side */

static uint8_t *attach(void *user, uint32_t id, uint32_t bytes)
{
    const uint32_t i = id - FIRST_FD;
    return i < MAX_BUFFERS && buffers[i].registered && buffers[i].bytes >= bytes ? buffers[i].at : NULL;
}
static void detach(void *user, uint32_t id, uint8_t *at, uint32_t bytes) {}
static void *take(void *user, uint32_t bytes) { return calloc(1, bytes); }
static void give(void *user, void *p, uint32_t bytes) { free(p); }

/* ------------------------------------------------------------ sessions */

int remote_session_control(uint32_t what, void *data, uint32_t bytes)
{
    if (planted("unsigned")) return planted("unsigned");
    may_load = what == 2 && bytes == 8 && ((const int *)data)[0] == 3 && ((const int *)data)[1] == 1;
    return may_load ? 0 : 0x80000414;
}

int remote_handle_control(uint32_t what, void *data, uint32_t bytes)
{
    uint32_t *info = data;
    if (what != 2 || bytes != 12 || info[0] != 3 || info[1] != 6) return 0x80000414;
    if (planted("info")) return planted("info");
    info[2] = planted("arch") ? (uint32_t)planted("arch") : 0x8c75; /* generation in the low byte */
    return 0;
}

int remote_handle64_control(uint64_t handle, uint32_t what, void *data, uint32_t bytes) { return 0; }

int remote_handle64_open(const char *uri, uint64_t *handle)
{
    const emulate_world world = { NULL, attach, detach, take, give, host_threads_of(&threads) };
    if (planted("open")) return planted("open");
    if (!may_load) return 0x80000406; /* unsigned code, not allowed before */
    if (strncmp(uri, "file:///libllada_npu-v", 22) ||
        !strstr(uri, "llada_npu_skel_handle_invoke&_modver=1.0&_dom=cdsp"))
        return 0x80000602;
    vtcm = aligned_alloc(TILE_BYTES, VTCM);
    emulate_init(&machine, &world, vtcm, VTCM, UINT64_C(3) << 30);
    if (!dsp_open(&program, &machine, 0)) return 0x80000402;
    messages = 0;
    *handle = 77;
    return 0;
}

int remote_handle64_close(uint64_t handle)
{
    if (handle != 77 || !vtcm) return 1;
    dsp_close(&program);
    free(vtcm);
    vtcm = NULL;
    return 0;
}

int remote_handle64_invoke(uint64_t handle, uint32_t scalars, remote_arg *args)
{
    const char *all = getenv("FAKE_CDSPRPC"), *at = all ? strstr(all, "call=") : NULL;
    if (handle != 77 || !vtcm || scalars != (2u << 24 | 1u << 16 | 1u << 8)) return 20;
    if (args[1].buffer.bytes != sizeof(npu_reply)) return 14;
    messages++;
    if (at && strtoul(at + 5, NULL, 0) == messages) return (int)strtoul(strchr(at, ':') + 1, NULL, 0);
    dsp_run(&program, args[0].buffer.at, (uint32_t)args[0].buffer.bytes, args[1].buffer.at);
    return 0;
}
