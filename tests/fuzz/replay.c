/* replay.c - runs a fuzzer over saved inputs, in builds without libFuzzer: every input that was once found, or once
 * broke something, is a regression test.  Arguments: files, or folders of files (not searched deeper). */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int run_file(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    long size = -1;
    int ok = 0;
    if (f && fseek(f, 0, SEEK_END) == 0) size = ftell(f);
    /* exactly the file's size, so that a sanitizer sees a read past the end */
    if (size >= 0 && (data = malloc(size ? (size_t)size : 1))) {
        rewind(f);
        ok = fread(data, 1, (size_t)size, f) == (size_t)size;
    }
    if (ok)
        LLVMFuzzerTestOneInput(data, (size_t)size);
    else
        fprintf(stderr, "%s: can't be read\n", path);
    free(data);
    if (f) fclose(f);
    return ok;
}

/* Returns the number of inputs run, or -1 when one could not be read. */
static int run_path(const char *path)
{
    char name[4096];
    int n = 0;
    struct dirent *e;
    DIR *d = opendir(path);
    if (!d) return run_file(path) ? 1 : -1;
    while (n >= 0 && (e = readdir(d))) {
        if (e->d_name[0] == '.') continue;
        snprintf(name, sizeof name, "%s/%s", path, e->d_name);
        n = run_file(name) ? n + 1 : -1;
    }
    closedir(d);
    return n;
}

int main(int argc, char **argv)
{
    int total = 0;
    for (int i = 1; i < argc; i++) {
        int n = run_path(argv[i]);
        if (n < 0) return 1;
        total += n;
    }
    printf("%d inputs replayed\n", total);
    if (!total) fprintf(stderr, "there is no saved input: a fuzzer's corpus must hold at least one\n");
    return total ? 0 : 1;
}
