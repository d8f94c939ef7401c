/* util.c - messages, growing text and file access for the sub-commands. */
#include "util.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---------------------------------------------------------------- memory and messages */

static void no_memory(void)
{
    fputs("llada: out of memory\n", stderr);
    _exit(EXIT_FAILED);
}

void *app_new(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);
    if (!p) no_memory();
    return p;
}

void *app_grow(void *p, size_t n, size_t size)
{
    if (size && n > SIZE_MAX / 2 / size) no_memory();
    size_t bytes = n * size;
    void *q = realloc(p, bytes > 0 ? bytes : 1);
    if (!q) no_memory();
    return q;
}

char *app_copy(const char *s, size_t n)
{
    char *p = app_new(n + 1, 1);
    if (n) memcpy(p, s, n);
    return p;
}

/* Columns of the terminal that sentences go to; 0: they go elsewhere, or it does not tell. */
static size_t columns(void)
{
    struct winsize w;
    return isatty(STDERR_FILENO) && ioctl(STDERR_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

enum { WIDEST = 100 }; /* longer lines are hard to read */

/* Breaks lines longer than `width` at blanks, rather than words where the terminal would.  Lines that begin with blanks
 * are for copying, and stay whole. */
static void wrap(text *t, size_t width)
{
    size_t line = 0, blank = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (t->p[i] == '\n') {
            line = i + 1;
            blank = 0;
        } else if (t->p[i] == ' ' && i > line) {
            blank = i;
        }
        if (i - line < width || !blank || t->p[line] == ' ') continue;
        t->p[blank] = '\n';
        line = blank + 1;
        blank = 0;
    }
}

/* Sentences may quote file names and the model's metadata: nothing of them may steer the terminal. */
static void say(const char *before, const char *fmt, va_list ap)
{
    text raw = {0}, safe = {0};
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n > 0) {
        raw.p = app_new((size_t)n + 1, 1);
        vsnprintf(raw.p, (size_t)n + 1, fmt, again);
        text_str(&safe, before);
        text_terminal(&safe, raw.p, (size_t)n);
        size_t width = columns();
        if (width >= 20) wrap(&safe, width < WIDEST ? width : WIDEST);
        text_str(&safe, "\n");
        fwrite(safe.p, 1, safe.n, stderr);
    }
    va_end(again);
    text_free(&raw);
    text_free(&safe);
}

void app_error(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("llada: ", fmt, ap);
    va_end(ap);
}

void app_note(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    say("", fmt, ap);
    va_end(ap);
}

int app_exit_code(llada_status st)
{
    switch (st) {
    case LLADA_OK: return EXIT_FINE;
    case LLADA_BAD_ARG:
    case LLADA_BAD_MODEL:
    case LLADA_TOO_LONG:
    case LLADA_UNSUPPORTED: return EXIT_WRONG_USE;
    case LLADA_CANCELLED: return 130;
    default: return EXIT_FAILED;
    }
}

int app_fail(const llada_err *err)
{
    app_error("%s", err->text[0] ? err->text : "failed without a reason");
    return app_exit_code(err->status);
}

/* ---------------------------------------------------------------- growing text */

static void text_room(text *t, size_t more)
{
    if (t->cap - t->n > more) return;
    if (more > SIZE_MAX / 4 || t->n > SIZE_MAX / 4) no_memory();
    size_t cap = t->cap ? t->cap * 2 : 64;
    while (cap - t->n <= more) cap *= 2;
    t->p = app_grow(t->p, cap, 1);
    t->cap = cap;
}

void text_add(text *t, const void *bytes, size_t n)
{
    text_room(t, n);
    if (n) memcpy(t->p + t->n, bytes, n);
    t->n += n;
    t->p[t->n] = 0;
}

void text_str(text *t, const char *s) { text_add(t, s, strlen(s)); }

void text_fmt(text *t, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    va_end(ap);
    if (n >= 0) {
        text_room(t, (size_t)n + 1);
        vsnprintf(t->p + t->n, (size_t)n + 1, fmt, again);
        t->n += (size_t)n;
    }
    va_end(again);
}

void text_count(text *t, long long n, const char *one, const char *many)
{
    text_fmt(t, "%lld %s", n, n == 1 ? one : many);
}

void text_cut(text *t, size_t n)
{
    if (n >= t->n) return;
    t->n = n;
    t->p[n] = 0;
}

void text_free(text *t)
{
    free(t->p);
    *t = (text){0};
}

/* Strict: no overlong forms, no surrogates, nothing over U+10FFFF. */
size_t text_character(const char *s, size_t n, int32_t *cp)
{
    const unsigned char *p = (const unsigned char *)s;
    int32_t c = p[0];
    size_t len = c < 0x80 ? 1 : c >= 0xC2 && c < 0xE0 ? 2 : c >= 0xE0 && c < 0xF0 ? 3 : c >= 0xF0 && c < 0xF5 ? 4 : 0;
    static const int32_t least[5] = {0, 0, 0x80, 0x800, 0x10000};
    *cp = c;
    if (len == 1) return 1;
    *cp = -1;
    if (!len || len > n) return 1;
    c &= 0x7F >> len;
    for (size_t i = 1; i < len; i++) {
        if ((p[i] & 0xC0) != 0x80) return 1;
        c = c << 6 | (p[i] & 0x3F);
    }
    if (c < least[len] || c > 0x10FFFF || (c >= 0xD800 && c < 0xE000)) return 1;
    *cp = c;
    return len;
}

static const char replacement[] = "\xEF\xBF\xBD";

void text_utf8(text *t, const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        int32_t cp;
        size_t len = text_character(p + i, n - i, &cp);
        if (cp < 0) text_str(t, replacement);
        else text_add(t, p + i, len);
        i += len;
    }
}

void text_terminal(text *t, const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        int32_t cp;
        size_t len = text_character(p + i, n - i, &cp);
        if (cp < 0) text_str(t, replacement);
        else if (cp < 32 && cp != '\n' && cp != '\t') text_fmt(t, "^%c", (char)(cp + 64));
        else if (cp >= 127 && cp < 0xA0) text_fmt(t, "<%02x>", (unsigned)cp);
        else text_add(t, p + i, len);
        i += len;
    }
}

void text_markup(text *t, const char *p, size_t n)
{
    for (size_t i = 0; i < n;) {
        int32_t cp;
        size_t len = text_character(p + i, n - i, &cp);
        if (cp == '<') text_str(t, "&lt;");
        else if (cp == '>') text_str(t, "&gt;");
        else if (cp == '&') text_str(t, "&amp;");
        else if (cp == '"') text_str(t, "&quot;");
        else if (cp < 0 || (cp < 32 && cp != '\n' && cp != '\t')) text_str(t, replacement);
        else text_add(t, p + i, len);
        i += len;
    }
}

/* ---------------------------------------------------------------- files */

int file_read(text *out, const char *path, size_t most)
{
    bool in = !path || !strcmp(path, "-");
    const char *name = in ? "standard input" : path;
    int fd = in ? 0 : open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        app_error("cannot open %s: %s", name, strerror(errno));
        return EXIT_WRONG_USE;
    }
    int rc = EXIT_FINE;
    char buf[16384];
    text_add(out, "", 0);
    while (!rc) {
        ssize_t n = read(fd, buf, sizeof buf);
        if (n == 0) break;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) {
            app_error("cannot read %s: %s", name, strerror(errno));
            rc = EXIT_WRONG_USE;
        } else if (out->n + (size_t)n > most) {
            app_error("%s is larger than %zu bytes", name, most);
            rc = EXIT_WRONG_USE;
        } else {
            text_add(out, buf, (size_t)n);
        }
    }
    if (!in) close(fd);
    return rc;
}

int file_check(const char *path)
{
    struct stat st;
    file_out o;
    /* opening a pipe would wait for a reader, and closing it would end what it reads */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode)) return EXIT_FINE;
    int rc = file_begin(&o, path);
    if (!rc) file_abandon(&o);
    return rc;
}

int file_begin(file_out *o, const char *path)
{
    struct stat st;
    *o = (file_out){.path = app_copy(path, strlen(path))};
    /* a rename would replace /dev/full or a named pipe by a file: such targets are written in place */
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode)) {
        o->f = fopen(path, "wbe");
    } else {
        text t = {0};
        text_fmt(&t, "%s.%ld.part", path, (long)getpid());
        o->temp = t.p;
        o->f = fopen(o->temp, "wbxe");
    }
    if (o->f) return EXIT_FINE;
    app_error("cannot write %s: %s", path, strerror(errno));
    free(o->temp);
    free(o->path);
    *o = (file_out){0};
    return EXIT_FAILED;
}

int file_commit(file_out *o)
{
    if (!o->f) return EXIT_FAILED;
    bool ok = fflush(o->f) == 0 && !ferror(o->f);
    if (ok && o->temp) ok = fsync(fileno(o->f)) == 0;
    int reason = errno;
    if (fclose(o->f) != 0 && ok) {
        reason = errno;
        ok = false;
    }
    o->f = NULL;
    if (ok && o->temp && rename(o->temp, o->path) != 0) {
        reason = errno;
        ok = false;
    }
    if (!ok) {
        app_error("cannot write %s: %s", o->path, strerror(reason));
        if (o->temp) unlink(o->temp);
    }
    free(o->temp);
    free(o->path);
    *o = (file_out){0};
    return ok ? EXIT_FINE : EXIT_FAILED;
}

void file_abandon(file_out *o)
{
    if (o->f) fclose(o->f);
    if (o->temp) unlink(o->temp);
    free(o->temp);
    free(o->path);
    *o = (file_out){0};
}

int file_write(const char *path, const void *bytes, size_t n)
{
    file_out o;
    int rc = file_begin(&o, path);
    if (rc) return rc;
    if (n) fwrite(bytes, 1, n, o.f); /* a failure stays in the stream and is reported at the end */
    return file_commit(&o);
}

/* ---------------------------------------------------------------- standard output */

void out_write(const void *bytes, size_t n)
{
    if (n) fwrite(bytes, 1, n, stdout); /* a failure stays in the stream until out_check */
}

void out_text(const char *p, size_t n)
{
    if (!out_is_terminal()) {
        out_write(p, n);
        return;
    }
    text t = {0};
    text_terminal(&t, p, n);
    out_write(t.p, t.n);
    text_free(&t);
}

bool out_check(void)
{
    bool lost = ferror(stdout) != 0;
    if (fflush(stdout) == 0 && !lost) return true;
    app_error("cannot write to standard output: %s", strerror(errno ? errno : EIO));
    return false;
}

bool out_is_terminal(void) { return isatty(STDOUT_FILENO) == 1; }

double app_seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

uint64_t app_hash(uint64_t h, const void *p, size_t n)
{
    const unsigned char *b = p;
    for (size_t i = 0; i < n; i++) h = (h ^ b[i]) * 1099511628211ull;
    return h;
}
