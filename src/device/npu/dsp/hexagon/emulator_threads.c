/* emulator_threads.c - threads of a Linux program without a run-time library, for the emulated flavour. */
#include "device/npu/dsp/hexagon/emulator_threads.h"

#include "device/npu/dsp/hexagon/start.h"

enum { STACK_BYTES = 64 << 10, FUTEX_WAIT = 0, FUTEX_WAKE = 1 };

/* All that threads share: memory, folder, files, signal handlers, the process; and a word is cleared at their end. */
static const long SHARED = 0x100 | 0x200 | 0x400 | 0x800 | 0x10000 | 0x40000 | 0x200000;

typedef struct {
    uint8_t stack[STACK_BYTES] __attribute__((aligned(128)));
    _Atomic uint32_t alive;
} own_memory;

static own_memory memory[MAX_THREADS + 1];

/* clone(flags, stack, ., alive, .): the thread begins with run and arg on top of its stack. */
long clone_onto(long flags, void *stack, void *unused, _Atomic uint32_t *alive);
__asm__(".globl clone_onto\n"
        "clone_onto:\n"
        " r4 = #0\n"
        " r6 = #220\n"
        " trap0(#1)\n"
        " p0 = cmp.eq(r0, #0)\n"
        " if (!p0) jumpr r31\n"
        " r1 = memw(r29 + #0)\n"
        " r0 = memw(r29 + #4)\n"
        " callr r1\n"
        " r0 = #0\n"
        " r6 = #93\n" /* exit */
        " trap0(#1)\n");

static void sleep_on(void *user, _Atomic uint32_t *word, uint32_t value)
{
    system_call(SYS_FUTEX, (long)word, FUTEX_WAIT, (long)value, 0, 0, 0);
}

static void wake(void *user, _Atomic uint32_t *word)
{
    system_call(SYS_FUTEX, (long)word, FUTEX_WAKE, INT32_MAX, 0, 0, 0);
}

static uintptr_t self(void *user) { return (uintptr_t)system_call(SYS_GETTID, 0, 0, 0, 0, 0, 0); }

static bool start(void *user, uint32_t number, void (*run)(void *), void *arg)
{
    own_memory *own = &memory[number];
    void **top = (void **)(void *)(own->stack + STACK_BYTES - 128);
    top[0] = (void *)run;
    top[1] = arg;
    atomic_store(&own->alive, 1);
    return !is_error(clone_onto(SHARED, top, NULL, &own->alive));
}

static void join(void *user, uint32_t number)
{
    _Atomic uint32_t *alive = &memory[number].alive;
    while (atomic_load(alive) != 0) sleep_on(user, alive, 1);
}

emulate_threads emulator_threads(void) { return (emulate_threads){ NULL, start, join, sleep_on, wake, self }; }
