/* builtin.S - the small model's bytes, placed in read-only data. */
    .section .rodata
    .global llada_builtin_begin
    .global llada_builtin_end
    .hidden llada_builtin_begin
    .hidden llada_builtin_end
    .balign 64
llada_builtin_begin:
    .incbin LLADA_BUILTIN
llada_builtin_end:
    .byte 0
    .section .note.GNU-stack,"",%progbits
