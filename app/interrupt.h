/* interrupt.h - Ctrl-C and SIGTERM: the running answer stops within one pass; a second one ends the program at once. */
#ifndef APP_INTERRUPT_H
#define APP_INTERRUPT_H

#include "llada.h"

void interrupt_install(void);
/* The session a signal cancels; NULL: none, and a signal ends the program. */
void interrupt_session(llada_session *s);
/* While on, a signal only interrupts the read of a line (chat's prompt). */
void interrupt_at_prompt(bool on);
int interrupt_signal(void);     /* the signal that came since the last clear; 0: none */
void interrupt_clear(void);
int interrupt_exit_code(void);  /* 130 for Ctrl-C, 143 for SIGTERM */
/* Signals are kept from the threads a session starts, so that the handler only ever runs on the main thread. */
void interrupt_block(void);
void interrupt_unblock(void);

#endif
