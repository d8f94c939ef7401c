/* transport.c - from a transport's name to the transport. */
#include "device/npu/transport.h"

#include <string.h>

static llada_status open_named(npu_transport **out, const npu_settings *s, llada_err *err)
{
    const char *name = s->transport ? s->transport : "fastrpc";
    static const char loopback[] = "loopback:", fastrpc[] = "fastrpc:";
    if (!strcmp(name, "inproc")) return npu_inproc_open(out, s, err);
    if (!strncmp(name, loopback, sizeof loopback - 1))
        return npu_loopback_open(out, name + sizeof loopback - 1, s, err);
    if (!strcmp(name, "fastrpc")) return npu_fastrpc_open(out, "libcdsprpc.so", s, err);
    if (!strncmp(name, fastrpc, sizeof fastrpc - 1)) return npu_fastrpc_open(out, name + sizeof fastrpc - 1, s, err);
    return llada_fail(err, LLADA_BAD_ARG,
                      "'%.64s' is no transport to an NPU: there are fastrpc, inproc and loopback:PROGRAM", name);
}

llada_status npu_transport_open(npu_transport **out, const npu_settings *s, llada_err *err)
{
    llada_status st = open_named(out, s, err);
    if (st == LLADA_OK) (*out)->few_rows = s->few_rows;
    return st;
}
