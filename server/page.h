/* page.h - the page's files, which are part of the program (page.S). */
#ifndef SERVER_PAGE_H
#define SERVER_PAGE_H

typedef struct {
    const char *path, *type, *begin, *end; /* all static */
} page_file;

const page_file *page_find(const char *path); /* a path of the table in page.c; "/" when it is none */

#endif
