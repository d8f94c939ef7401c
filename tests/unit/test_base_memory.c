/* Free memory, read from made-up proc and sys folders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/os.h"
#include "scratch.h"

#define COUNT(a) (sizeof(a) / sizeof(a)[0])
#define V1 "sys/fs/cgroup/memory"
#define V2 "sys/fs/cgroup"

typedef struct {
    const char *name, *text;
} file;

static const struct {
    const char *what;
    uint64_t want;
    file files[12];
} cases[] = {
    { "nothing to read", 0, { { "etc/x", "" } } },
    { "available, not free", 5000 * 1024,
      { { "proc/meminfo", "MemTotal:  9000 kB\nMemFree:  100 kB\nMemAvailable:   5000 kB\nBuffers: 1 kB\n" } } },
    { "only at the start of a line", 0, { { "proc/meminfo", "MemTotal: 9 kB\nNotMemAvailable: 5 kB\n" } } },
    { "no number", 0, { { "proc/meminfo", "MemAvailable: lots\n" } } },
    { "a number past 64 bits", 0, { { "proc/meminfo", "MemAvailable: 99999999999999999999999 kB\n" } } },
    { "a number that overflows in bytes", 0, { { "proc/meminfo", "MemAvailable: 18446744073709551615 kB\n" } } },
    { "version 2", 60000,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "0::/a/b\n" },
        { V2 "/a/b/memory.max", "100000\n" },
        { V2 "/a/b/memory.current", "40000\n" } } },
    { "cache that is given up first is free", 85000,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "0::/a\n" },
        { V2 "/a/memory.max", "100000\n" },
        { V2 "/a/memory.current", "40000\n" },
        { V2 "/a/memory.stat", "anon 7\nactive_file 1000\ninactive_file 25000\n" } } },
    { "more cache than is used", 100000,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "0::/a\n" },
        { V2 "/a/memory.max", "100000\n" },
        { V2 "/a/memory.current", "40000\n" },
        { V2 "/a/memory.stat", "inactive_file 50000\n" } } },
    { "no limit", 5000 * 1024,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "0::/a\n" },
        { V2 "/a/memory.max", "max\n" },
        { V2 "/a/memory.current", "40000\n" } } },
    { "a limit above what is there", 5000 * 1024,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "0::/a\n" },
        { V2 "/a/memory.max", "100000000\n" },
        { V2 "/a/memory.current", "1\n" } } },
    { "a group around ours allows less", 1000,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "0::/a/b/c\n" },
        { V2 "/a/memory.max", "50000\n" },
        { V2 "/a/memory.current", "49000\n" },
        { V2 "/a/b/memory.max", "max\n" },
        { V2 "/a/b/memory.current", "49000\n" },
        { V2 "/a/b/c/memory.max", "100000\n" },
        { V2 "/a/b/c/memory.current", "49000\n" } } },
    { "in a container, which is its own top", 9000,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "0::/\n" },
        { V2 "/memory.max", "10000\n" },
        { V2 "/memory.current", "1000\n" } } },
    { "a name that leads nowhere", 9000,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "0::/outer/name\n" },
        { V2 "/memory.max", "10000\n" },
        { V2 "/memory.current", "1000\n" } } },
    { "used beyond the limit", 1,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "0::/a\n" },
        { V2 "/a/memory.max", "10000\n" },
        { V2 "/a/memory.current", "20000\n" } } },
    { "a use past 64 bits", 5000 * 1024,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "0::/a\n" },
        { V2 "/a/memory.max", "10000\n" },
        { V2 "/a/memory.current", "99999999999999999999999\n" } } },
    { "version 1", 30000,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "9:name=systemd:/x\n4:memory:/job:1/step\n3:cpuset:/\n" },
        { V1 "/job:1/step/memory.limit_in_bytes", "50000\n" },
        { V1 "/job:1/step/memory.usage_in_bytes", "30000\n" },
        { V1 "/job:1/step/memory.stat", "inactive_file 1\ntotal_inactive_file 10000\n" } } },
    { "version 1, shared hierarchy, last line unended", 20000,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "4:cpu,memory,pids:/j" },
        { V1 "/j/memory.limit_in_bytes", "50000\n" },
        { V1 "/j/memory.usage_in_bytes", "30000\n" } } },
    { "version 1, another kind whose name holds the word", 5000 * 1024,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "4:xmemory:/j\n" },
        { V1 "/j/memory.limit_in_bytes", "50000\n" },
        { V1 "/j/memory.usage_in_bytes", "30000\n" } } },
    { "both versions: the smaller", 20000,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" },
        { "proc/self/cgroup", "4:memory:/j\n0::/u\n" },
        { V1 "/j/memory.limit_in_bytes", "50000\n" },
        { V1 "/j/memory.usage_in_bytes", "30000\n" },
        { V2 "/u/memory.max", "90000\n" },
        { V2 "/u/memory.current", "30000\n" } } },
    { "only a group", 7,
      { { "proc/self/cgroup", "0::/\n" }, { V2 "/memory.max", "8\n" }, { V2 "/memory.current", "1\n" } } },
    { "lines that are none", 5000 * 1024,
      { { "proc/meminfo", "MemAvailable: 5000 kB\n" }, { "proc/self/cgroup", "\n::\n:\nx\n0:\n0::\n:::::\n" } } },
};

static void test_cases(void **state)
{
    for (size_t i = 0; i < COUNT(cases); i++) {
        scratch box;
        assert_true(scratch_open(&box));
        for (const file *f = cases[i].files; f->name; f++)
            assert_non_null(scratch_write(&box, f->name, f->text, strlen(f->text)));
        uint64_t got = os_free_memory_in(box.dir);
        scratch_close(&box);
        if (got != cases[i].want)
            fail_msg("%s: %llu, not %llu", cases[i].what, (unsigned long long)got, (unsigned long long)cases[i].want);
    }
}

/* Names longer than any path: no group is found, nothing is overrun. */
static void test_long_name(void **state)
{
    static char line[7000] = "0::/";
    scratch box;
    assert_true(scratch_open(&box));
    memset(line + 4, 'n', sizeof line - 5);
    assert_non_null(scratch_write(&box, "proc/self/cgroup", line, sizeof line - 1));
    assert_non_null(scratch_write(&box, "proc/meminfo", "MemAvailable: 3 kB\n", 19));
    uint64_t got = os_free_memory_in(box.dir);
    scratch_close(&box);
    assert_int_equal(got, 3 * 1024);
}

static void test_this_machine(void **state)
{
    uint64_t n = os_free_memory();
    assert_true(n > 1 << 20 && n < UINT64_C(1) << 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cases),
        cmocka_unit_test(test_long_name),
        cmocka_unit_test(test_this_machine),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
