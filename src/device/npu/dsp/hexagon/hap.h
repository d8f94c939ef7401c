/* hap.h - services of the DSP's system that the device flavour uses: the only names it may import. */
#ifndef DSP_HAP_H
#define DSP_HAP_H

#include <stddef.h>
#include <stdint.h>

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

#endif
