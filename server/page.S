/* page.S - the page's files, placed in read-only data as they are. */
    .section .rodata
    .macro file name, path
    .global page_\name\()_begin
    .global page_\name\()_end
    .hidden page_\name\()_begin
    .hidden page_\name\()_end
page_\name\()_begin:
    .incbin "\path"
page_\name\()_end:
    .byte 0
    .endm
    file html, index.html
    file css, page.css
    file js, page.js
    .section .note.GNU-stack,"",%progbits
