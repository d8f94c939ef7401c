/* emulate_end.h - ends what emulate_begin.h began. */
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC reset_options
#endif
