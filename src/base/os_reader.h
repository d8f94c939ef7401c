/* os_reader.h - pieces of a file, read past the page cache where the system allows it: what is read once a pass and
 * thrown away again must not push out what others keep there.  Reads may come from several threads. */
#ifndef BASE_OS_READER_H
#define BASE_OS_READER_H

#include "base/os.h"

enum { OS_READ_ALIGN = 4096 }; /* memory, offsets and lengths of direct reads are multiples */

typedef struct os_reader os_reader;

/* `same` (may be NULL): the file must still be that one. */
llada_status os_reader_open(os_reader **out, const char *path, const os_file *same, llada_err *err);
void os_reader_close(os_reader **r); /* NULL-safe */
bool os_reader_direct(const os_reader *r); /* false: read through the page cache, which is told to forget */

/* Bytes of memory a read of `bytes` from offset `at` needs: whole aligned pieces. */
static inline size_t os_reader_room(uint64_t at, size_t bytes)
{
    return ((size_t)(at % OS_READ_ALIGN) + bytes + OS_READ_ALIGN - 1) / OS_READ_ALIGN * OS_READ_ALIGN;
}

/* Reads into room[os_reader_room(at, bytes)], aligned; the byte at offset `at` comes to lie at at % OS_READ_ALIGN. */
llada_status os_reader_read(os_reader *r, void *room, uint64_t at, size_t bytes, llada_err *err);

#endif
