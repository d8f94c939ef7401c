/* gguf_split.c - models in several files.  Shard k of n is named PREFIX-0000k-of-0000n.gguf (k from 1) and says so in
 * its keys split.no (from 0), split.count and split.tensors.count; name and keys must agree, or a shard was renamed,
 * swapped or comes from another model. */
#include <stdio.h>

#include "format/gguf_impl.h"

enum { SUFFIX = 20 }; /* characters in "-00001-of-00003.gguf" */

typedef struct {
    int64_t no, count, tensors; /* tensors: -1 when the file does not say */
} split_keys;

/* Five digits, or -1. */
static int five_digits(const char *s)
{
    int v = 0;
    for (int i = 0; i < 5; i++) {
        if (s[i] < '0' || s[i] > '9') return -1;
        v = v * 10 + (s[i] - '0');
    }
    return v;
}

/* False when the path is not named as a shard. */
static bool parse_name(const char *path, int *k, int *n)
{
    size_t len = strlen(path);
    if (len < SUFFIX) return false;
    const char *s = path + len - SUFFIX;
    if (s[0] != '-' || memcmp(s + 6, "-of-", 4) || strcmp(s + 15, ".gguf")) return false;
    *k = five_digits(s + 1);
    *n = five_digits(s + 10);
    return *k >= 1 && *n >= 1;
}

static llada_status read_split_keys(const gguf_part *p, split_keys *s, llada_err *err)
{
    *s = (split_keys){ .no = 0, .count = 1, .tensors = -1 };
    llada_status st;
    if (!gguf_part_find(p, "split.count")) return LLADA_OK;
    if ((st = gguf_part_int(p, "split.count", 0, GGUF_MAX_SHARDS, &s->count, err))) return st;
    if (s->count < 2) {
        s->count = 1; /* files that were never split say 0 or 1 */
        return LLADA_OK;
    }
    if ((st = gguf_part_int(p, "split.no", 0, s->count - 1, &s->no, err))) return st;
    if (!gguf_part_find(p, "split.tensors.count")) return LLADA_OK;
    return gguf_part_int(p, "split.tensors.count", 0, INT32_MAX, &s->tensors, err);
}

static llada_status check_name(const gguf_part *p, const char *path, const split_keys *s, llada_err *err)
{
    int k = 0, n = 0;
    if (!parse_name(path, &k, &n))
        return llada_fail(
            err, LLADA_BAD_MODEL,
            "%sthe file is shard %lld of %lld, but its name does not end in -%05lld-of-%05lld.gguf: renamed?", p->where,
            (long long)s->no + 1, (long long)s->count, (long long)s->no + 1, (long long)s->count);
    if (k != s->no + 1 || n != s->count)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "%sthe file is shard %lld of %lld by its keys, but %d of %d by its name: renamed or swapped",
                          p->where, (long long)s->no + 1, (long long)s->count, k, n);
    return LLADA_OK;
}

/* Opens shard number `no` (from 0) beside `path` and compares it with what the first opened shard said. */
static llada_status open_shard(gguf_part *p, const char *path, int64_t no, const split_keys *want, bool use_mmap,
                               char *warn, size_t cap, llada_err *err)
{
    char suffix[64];
    snprintf(suffix, sizeof suffix, "-%05lld-of-%05lld.gguf", (long long)no + 1, (long long)want->count);
    char *name = mem_strdup(path, strlen(path));
    if (!name) return llada_fail(err, LLADA_NO_MEMORY, "no memory for a path");
    memcpy(name + strlen(name) - SUFFIX, suffix, SUFFIX);
    llada_err why = { 0 };
    llada_status st = gguf_open_part(p, name, use_mmap, warn, cap, &why);
    mem_free(name);
    if (st) return llada_fail(err, st, "shard %lld of %lld: %s", (long long)no + 1, (long long)want->count, why.text);
    split_keys got;
    if ((st = read_split_keys(p, &got, err))) return st;
    if (got.count != want->count || got.no != no)
        return llada_fail(
            err, LLADA_BAD_MODEL,
            "%sthe file is shard %lld of %lld by its keys, but %lld of %lld by its name: renamed or swapped", p->where,
            (long long)got.no + 1, (long long)got.count, (long long)no + 1, (long long)want->count);
    if (got.tensors != want->tensors)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "%sthe shard belongs to a set of %lld tensors, the others to one of %lld: another model's",
                          p->where, (long long)got.tensors, (long long)want->tensors);
    return LLADA_OK;
}

static llada_status open_others(gguf *g, const char *path, const split_keys *s, bool use_mmap, char *warn, size_t cap,
                                llada_err *err)
{
    int64_t total = g->parts[s->no].n_t;
    for (int64_t i = 0; i < s->count; i++) {
        gguf_part *p = &g->parts[i];
        if (i == s->no) continue;
        llada_status st = open_shard(p, path, i, s, use_mmap, warn, cap, err);
        if (st) return st;
        if ((total += p->n_t) > GGUF_MAX_TENSORS)
            return llada_fail(err, LLADA_BAD_MODEL, "%smore than %d tensors in the set", p->where, GGUF_MAX_TENSORS);
    }
    if (s->tensors >= 0 && total != s->tensors)
        return llada_fail(
            err, LLADA_BAD_MODEL,
            "%sthe set should have %lld tensors, but its %lld shards hold %lld: a shard of another model?",
            g->parts[0].where, (long long)s->tensors, (long long)s->count, (long long)total);
    return LLADA_OK;
}

llada_status gguf_open_set(gguf *g, const char *path, bool use_mmap, char *warn, size_t cap, llada_err *err)
{
    split_keys s;
    int k, n;
    llada_status st = read_split_keys(&g->parts[0], &s, err);
    if (st) return st;
    if (s.count == 1) {
        if (path && parse_name(path, &k, &n) && n > 1)
            return llada_fail(err, LLADA_BAD_MODEL,
                              "%sthe name says shard %d of %d, but the file has no key split.count: "
                              "renamed, or not cut by a GGUF tool",
                              g->parts[0].where, k, n);
        return LLADA_OK;
    }
    if (!path)
        return llada_fail(err, LLADA_BAD_MODEL,
                          "shard %lld of %lld cannot be opened from memory; open the set by its path",
                          (long long)s.no + 1, (long long)s.count);
    if ((st = check_name(&g->parts[0], path, &s, err))) return st;
    gguf_part *all = mem_array((size_t)s.count, sizeof *all);
    if (!all) return llada_fail(err, LLADA_NO_MEMORY, "no memory for %lld shards", (long long)s.count);
    all[s.no] = g->parts[0];
    mem_free(g->parts);
    g->parts = all;
    g->n_parts = (uint32_t)s.count;
    return open_others(g, path, &s, use_mmap, warn, cap, err);
}
