/* reads.c - direct reads of a large file as the memory runtime could make them: pread one at a time, or io_uring with
 * several in flight; into large pages or small ones.  The figures of decision 20 are its.
 *
 *   cc -O2 -o /tmp/reads bench/reads.c -luring && /tmp/reads MODEL.gguf [GB of it, 4] [rounds, 5]
 *
 * Prints MB/s, medians over rounds; a round goes through all ways once, so that what else the machine does meets all. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <liburing.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { MOST_ROUNDS = 25, ROOM = 64 << 20, MB = 1 << 20 };

typedef struct {
    size_t block;
    int depth; /* 0: pread */
    int slots; /* blocks of memory that are filled in turn */
    int large; /* pages */
} way;

static const way ways[] = {
    {8 * MB, 0, 4, 0}, {8 * MB, 2, 4, 0}, {8 * MB, 4, 4, 0}, {2 * MB, 0, 4, 1}, {2 * MB, 2, 4, 1}, {2 * MB, 4, 4, 1},
    {4 * MB, 0, 4, 1}, {4 * MB, 2, 4, 1}, {4 * MB, 4, 4, 1}, {8 * MB, 0, 1, 1}, {8 * MB, 0, 4, 1}, {8 * MB, 2, 4, 1},
    {8 * MB, 4, 4, 1},
};
enum { WAYS = sizeof ways / sizeof *ways };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void die(const char *what)
{
    perror(what);
    exit(1);
}

static void by_pread(int fd, const way *w, char *room, size_t total)
{
    for (size_t at = 0; at < total; at += w->block)
        if (pread(fd, room + at / w->block % (size_t)w->slots * w->block, w->block, (off_t)at) != (ssize_t)w->block)
            die("pread");
}

static void by_ring(int fd, const way *w, char *room, size_t total)
{
    struct io_uring ring;
    if (io_uring_queue_init(8, &ring, 0) < 0) die("io_uring");
    int flying = 0;
    for (size_t at = 0; at < total || flying > 0;) {
        for (; flying < w->depth && at < total; at += w->block, flying++) {
            char *to = room + at / w->block % (size_t)w->slots * w->block;
            io_uring_prep_read(io_uring_get_sqe(&ring), fd, to, (unsigned)w->block, at);
            io_uring_submit(&ring);
        }
        struct io_uring_cqe *done;
        if (io_uring_wait_cqe(&ring, &done) < 0 || done->res != (int)w->block) die("io_uring");
        io_uring_cqe_seen(&ring, done);
        flying--;
    }
    io_uring_queue_exit(&ring);
}

static double rate(int fd, const way *w, size_t total)
{
    char *raw = mmap(NULL, 2 * ROOM, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) die("mmap");
    char *room = raw + (ROOM - (size_t)raw % ROOM);
    madvise(room, ROOM, w->large ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    memset(room, 1, ROOM);
    total = total / w->block * w->block;
    double began = seconds();
    if (w->depth) by_ring(fd, w, room, total);
    else by_pread(fd, w, room, total);
    double took = seconds() - began;
    munmap(raw, 2 * ROOM);
    return (double)total / took / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    static double rates[WAYS][MOST_ROUNDS];
    int fd = argc > 1 ? open(argv[1], O_RDONLY | O_DIRECT) : -1, rounds = argc > 3 ? atoi(argv[3]) : 5;
    if (fd < 0) die("usage: reads FILE [GB] [ROUNDS]");
    if (rounds < 1 || rounds > MOST_ROUNDS) rounds = 5;
    for (int r = 0; r < rounds; r++)
        for (int i = 0; i < WAYS; i++)
            rates[i][r] = rate(fd, &ways[i], (size_t)(1e9 * (argc > 2 ? atof(argv[2]) : 4)));
    for (int i = 0; i < WAYS; i++) {
        qsort(rates[i], (size_t)rounds, sizeof **rates, by_value);
        printf("%zu MB, %s, %d in flight, into %d places in turn of %s pages: %.0f (%.0f to %.0f)\n", ways[i].block / MB,
               ways[i].depth ? "io_uring" : "pread", ways[i].depth ? ways[i].depth : 1, ways[i].slots,
               ways[i].large ? "large" : "small", rates[i][rounds / 2], rates[i][0], rates[i][rounds - 1]);
    }
    return 0;
}
