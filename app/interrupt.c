/* interrupt.c - signal handling.  A handler has no argument to carry state, so this file is the one place of the
 * program with variables that change; all are written by the main thread and its handler only. */
#include "interrupt.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

static volatile sig_atomic_t signal_seen, at_prompt;
static llada_session *volatile running;

static void on_signal(int sig)
{
    if (at_prompt) {
        signal_seen = sig;
        return;
    }
    if (!running || signal_seen) _exit(128 + sig);
    signal_seen = sig;
    llada_cancel(running);
}

/* A mapped model file that was cut short on disk: there is nothing to go on with, but a sentence. */
static void on_lost_file(int sig)
{
    static const char said[] = "llada: the model's file was cut short while it was in use\n";
    if (write(STDERR_FILENO, said, sizeof said - 1) < 0) _exit(2);
    _exit(1);
}

static void signal_set(sigset_t *set)
{
    sigemptyset(set);
    sigaddset(set, SIGINT);
    sigaddset(set, SIGTERM);
}

void interrupt_install(void)
{
    struct sigaction sa = {.sa_handler = on_signal}; /* no SA_RESTART: a read at the prompt must end */
    signal_set(&sa.sa_mask);
    sigaction(SIGINT, &sa, NULL);
    sigaction(SIGTERM, &sa, NULL);
    struct sigaction lost = {.sa_handler = on_lost_file};
    sigaction(SIGBUS, &lost, NULL);
    struct sigaction ignore = {.sa_handler = SIG_IGN}; /* a closed pipe is a failed write, with a sentence */
    sigaction(SIGPIPE, &ignore, NULL);
}

void interrupt_session(llada_session *s) { running = s; }

void interrupt_at_prompt(bool on) { at_prompt = on; }

int interrupt_signal(void) { return signal_seen; }

void interrupt_clear(void) { signal_seen = 0; }

int interrupt_exit_code(void) { return 128 + (signal_seen ? signal_seen : SIGINT); }

void interrupt_block(void)
{
    sigset_t set;
    signal_set(&set);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

void interrupt_unblock(void)
{
    sigset_t set;
    signal_set(&set);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}
