/* gguf_magic.c - the first bytes: is it GGUF, of which version, and if not, what is it?  People rename downloads, so
 * the usual mistakes get their own sentence. */
#include "format/gguf_impl.h"

static const struct {
    const char *magic;
    size_t len;
    const char *says;
} others[] = {
    { "\x1f\x8b", 2, "it is gzip; unpack it first" },
    { "PK\3\4", 4, "it is a zip archive (a PyTorch checkpoint?); convert it" },
    { "\x28\xb5\x2f\xfd", 4, "it is zstd; unpack it first" },
    { "\xfd"
      "7zXZ",
      5, "it is xz; unpack it first" },
    { "version https://git-lfs", 23, "it is a Git LFS pointer, not the file itself" },
    /* the older formats of the same family are little-endian words, so their letters stand backwards */
    { "lmgg", 4, "it is the old ggml format; convert the model again" },
    { "fmgg", 4, "it is the old ggmf format; convert the model again" },
    { "tjgg", 4, "it is the old ggjt format; convert the model again" },
    { "algg", 4, "it is a ggla adapter of the old format; convert it again" },
};

/* Blanks, then '<' and one of the words a web page begins with. */
static bool is_html(const uint8_t *d, size_t len)
{
    static const char *const words[] = { "!doctype", "html", "head", "?xml" };
    size_t i = 0;
    while (i < len && i < 256 && (d[i] == ' ' || d[i] == '\t' || d[i] == '\r' || d[i] == '\n')) i++;
    if (i >= len || d[i++] != '<') return false;
    for (size_t w = 0; w < sizeof words / sizeof *words; w++) {
        size_t k = 0, n = strlen(words[w]);
        while (k < n && i + k < len && (d[i + k] | 0x20) == (words[w][k] | 0x20)) k++;
        if (k == n) return true;
    }
    return false;
}

static llada_status not_gguf(const gguf_part *p, llada_err *err)
{
    const uint8_t *d = p->file.data;
    size_t len = p->file.len;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (len >= others[i].len && !memcmp(d, others[i].magic, others[i].len))
            return llada_fail(err, LLADA_BAD_MODEL, "%snot GGUF: %s", p->where, others[i].says);
    if (is_html(d, len))
        return llada_fail(err, LLADA_BAD_MODEL, "%snot GGUF: it is a web page (HTML); download the file itself",
                          p->where);
    if (len > 9 && d[8] == '{' && le64(d) < len)
        return llada_fail(err, LLADA_BAD_MODEL, "%snot GGUF: it looks like safetensors; convert it", p->where);
    return llada_fail(err, LLADA_BAD_MODEL, "%snot GGUF: it begins with bytes %02x %02x %02x %02x", p->where, d[0],
                      d[1], d[2], d[3]);
}

llada_status gguf_check_magic(const gguf_part *p, llada_err *err)
{
    const uint8_t *d = p->file.data;
    size_t len = p->file.len;
    if (len == 0) return llada_fail(err, LLADA_BAD_MODEL, "%snot GGUF: the file is empty", p->where);
    if (len < 4) return llada_fail(err, LLADA_BAD_MODEL, "%snot GGUF: the file has only %zu bytes", p->where, len);
    bool swapped = !memcmp(d, "FUGG", 4);
    if (!swapped && memcmp(d, "GGUF", 4)) return not_gguf(p, err);
    if (!swapped && len < 8) return gguf_cut_short(p, "the version", "", 4, 4, err);
    uint32_t v = swapped ? 0 : le32(d + 4);
    /* version 2 or 3 read in the wrong byte order */
    if (swapped || (v && !(v & 0xffff)))
        return llada_fail(err, LLADA_BAD_MODEL, "%sbig-endian GGUF: convert it to little-endian", p->where);
    if (v != 2 && v != 3)
        return llada_fail(err, LLADA_BAD_MODEL, "%sGGUF version %u; versions 2 and 3 are supported", p->where, v);
    return LLADA_OK;
}
