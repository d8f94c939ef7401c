/* page.c - finds the page's files (page.h). */
#include "page.h"

#include <string.h>

extern const char page_html_begin[], page_html_end[], page_css_begin[], page_css_end[], page_js_begin[], page_js_end[];

const page_file *page_find(const char *path)
{
    static const page_file files[] = {
        {"/", "text/html; charset=utf-8", page_html_begin, page_html_end},
        {"/page.css", "text/css; charset=utf-8", page_css_begin, page_css_end},
        {"/page.js", "text/javascript; charset=utf-8", page_js_begin, page_js_end},
    };
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++)
        if (!strcmp(files[i].path, path)) return &files[i];
    return &files[0];
}
