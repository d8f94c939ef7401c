/* hap.h - services of the DSP's system that the device flavour uses: the only names it may import. */
#ifndef DSP_HAP_H
#define DSP_HAP_H

#include <stddef.h>
#include <stdint.h>

#include "device/npu/remote.h"

void *HAP_mmap(void *at, int bytes, int protection, int flags, int file, long offset);
int HAP_munmap(void *at, int bytes);
void *HAP_mmap2(void *at, size_t bytes, int protection, int flags, int file, long offset);
int HAP_munmap2(void *at, size_t bytes);

/* Larger than the system's own record, which grew over its versions. */
typedef struct {
    uint64_t opaque[64];
} resource_request;

int compute_resource_attr_init(resource_request *r);
int compute_resource_attr_set_serialize(resource_request *r, unsigned char on);
int compute_resource_attr_set_vtcm_param(resource_request *r, unsigned bytes, unsigned char one_page);
int compute_resource_attr_set_hmx_param(resource_request *r, unsigned char on);
void *compute_resource_attr_get_vtcm_ptr(resource_request *r);
unsigned compute_resource_acquire(resource_request *r, unsigned microseconds);
int compute_resource_release(unsigned context);
int compute_resource_hmx_lock(unsigned context);
int compute_resource_hmx_unlock(unsigned context);

enum { POWER_HMX = 13 };
typedef struct {
    uint32_t type, zero;
    uint32_t hmx_up;
    uint32_t more[61];
} power_request;

int HAP_power_set(void *client, power_request *r);

/* The message queue: the DSP's end.  Call-backs NULL: packets are asked for.  Times in microseconds.  Weak: a
 * system that has no queue loads us all the same. */
#pragma weak dspqueue_import
#pragma weak dspqueue_close
#pragma weak dspqueue_write
#pragma weak dspqueue_read
typedef struct dspqueue dspqueue;
typedef void (*queue_callback)(dspqueue *end, int error, void *context);
int dspqueue_import(uint64_t id, queue_callback packet, queue_callback error, void *context, dspqueue **end);
int dspqueue_close(dspqueue *end);
int dspqueue_write(dspqueue *end, uint32_t flags, uint32_t n_buffers, queue_buffer *buffers, uint32_t bytes,
                   const uint8_t *message, uint32_t patience);
int dspqueue_read(dspqueue *end, uint32_t *flags, uint32_t most_buffers, uint32_t *n_buffers, queue_buffer *buffers,
                  uint32_t room, uint32_t *bytes, uint8_t *message, uint32_t patience);

/* Threads.  The attributes are set by inline functions of the vendor's header, so their places are part of the binary
 * interface; what is behind them here is room for a later record. */
typedef struct {
    char name[16];
    uint8_t in_tightly_coupled, profile;
    uint16_t priority;
    uint8_t grows;
    uint8_t bus_priority; /* 255: as the system has it */
    uint16_t time_test;   /* 0xfffe: none */
    uint32_t stack_bytes;
    void *stack;
    uint16_t detached; /* 1: will be joined */
    uint16_t more[15];
} thread_attributes;

int qurt_thread_create(unsigned *id, thread_attributes *a, void (*run)(void *), void *arg);
int qurt_thread_join(unsigned id, int *result);
void qurt_thread_exit(int result);
unsigned qurt_thread_get_id(void);
int qurt_thread_get_priority(unsigned id);
int qurt_futex_wait(void *word, int value);
int qurt_futex_wake(void *word, int most);
enum { VECTORS_OF_128 = 1 };
int qurt_hvx_lock(int mode); /* a vector context for the calling thread */
int qurt_hvx_unlock(void);

#endif
