/* emulator_main.c - the DSP program as a Linux program for the emulator: messages come through a ring in shared memory,
 * and a buffer's number is the number of a file of the host process.
 *
 *     program PID RING VTCM BUDGET CONTEXTS
 *
 * host process, its file of the ring, bytes of VTCM, MiB of addresses, vector contexts */
#include "device/npu/dsp/dsp.h"
#include "device/npu/dsp/emulate.h"
#include "device/npu/dsp/hexagon/emulator_threads.h"
#include "device/npu/dsp/hexagon/start.h"
#include "device/npu/ring.h"

__asm__(".globl _start\n_start:\n r0 = r29\n r29 = and(r29, #-128)\n allocframe(#0)\n call begin\n");

static uint32_t host, host_ring; /* the host's process, and its file of the ring */
static port machine;
static dsp program;

static uint32_t number(const char *s)
{
    uint32_t n = 0;
    while (*s) n = n * 10 + (uint32_t)(*s++ - '0');
    return n;
}

static char *put_number(char *to, uint32_t n)
{
    char digits[10];
    int i = 0;
    do {
        digits[i++] = (char)('0' + n % 10);
        n /= 10;
    } while (n);
    while (i) *to++ = digits[--i];
    return to;
}

static char *put_text(char *to, const char *s)
{
    while (*s) *to++ = *s++;
    return to;
}

static long open_of_host(uint32_t file)
{
    char path[48], *p = put_number(put_text(path, "/proc/"), host);
    p = put_number(put_text(p, "/fd/"), file);
    *p = 0;
    return system_call(SYS_OPENAT, -100, (long)path, 2, 0, 0, 0);
}

/* file -1: memory of its own. */
static void *map(uint32_t bytes, long file)
{
    const long shared = 1, private_anonymous = 0x22;
    long p = system_call(SYS_MMAP, 0, (long)bytes, 3, file < 0 ? private_anonymous : shared, file, 0);
    return is_error(p) ? NULL : (void *)p;
}

static uint8_t *attach(void *user, uint32_t id, uint32_t bytes)
{
    const long file = open_of_host(id);
    if (is_error(file)) return NULL;
    uint8_t *p = map(bytes, file);
    system_call(SYS_CLOSE, file, 0, 0, 0, 0, 0);
    return p;
}

static void detach(void *user, uint32_t id, uint8_t *at, uint32_t bytes)
{
    system_call(SYS_MUNMAP, (long)at, (long)bytes, 0, 0, 0, 0);
}

static void *take(void *user, uint32_t bytes) { return map(bytes, -1); }
static void give(void *user, void *p, uint32_t bytes) { detach(user, 0, p, bytes); }

/* A host that was killed leaves nobody to say quit. */
static bool host_lives(void)
{
    const long file = open_of_host(host_ring);
    if (is_error(file)) return false;
    system_call(SYS_CLOSE, file, 0, 0, 0, 0, 0);
    return true;
}

static int serve(npu_ring *ring)
{
    static const int32_t second[2] = { 1, 0 }; /* a time, in the machine's 32-bit form */
    uint32_t seen = 0;
    for (;;) {
        uint32_t asked;
        while ((asked = __atomic_load_n(&ring->asked, __ATOMIC_ACQUIRE)) == seen) {
            system_call(SYS_FUTEX, (long)&ring->asked, 0, (long)seen, (long)second, 0, 0);
            if (!host_lives()) return 0;
        }
        if (__atomic_load_n(&ring->quit, __ATOMIC_ACQUIRE)) return 0;
        seen = asked;
        dsp_run(&program, ring->message, ring->bytes, &ring->reply);
        __atomic_store_n(&ring->answered, seen, __ATOMIC_RELEASE);
        system_call(SYS_FUTEX, (long)&ring->answered, 1, 1, 0, 0, 0);
    }
}

static int run(char **args)
{
    const emulate_world world = { NULL, attach, detach, take, give, emulator_threads() };
    host = number(args[1]);
    host_ring = number(args[2]);
    const long file = open_of_host(host_ring);
    if (is_error(file)) return 2;
    npu_ring *ring = map(sizeof *ring, file);
    const uint32_t vtcm = number(args[3]);
    uint8_t *memory = map(vtcm, -1); /* aligned to a page, more than a tile */
    if (!ring || !memory) return 3;
    emulate_init(&machine, &world, memory, vtcm, (uint64_t)number(args[4]) << 20);
    return dsp_open(&program, &machine, number(args[5])) ? serve(ring) : 4;
}

void begin(long *stack);
void begin(long *stack) { system_call(SYS_EXIT_GROUP, stack[0] == 6 ? run((char **)(stack + 1)) : 1, 0, 0, 0, 0, 0); }
