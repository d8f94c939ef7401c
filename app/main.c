/* main.c - the program: finds the sub-command, reads its flags, runs it, and looks whether all output arrived. */
#include "commands.h"
#include "interrupt.h"
#include "util.h"

#include <fcntl.h>
#include <locale.h>
#include <string.h>
#include <unistd.h>

extern char **environ;

static int run_command(const opt_command *cmd, const options *o)
{
    switch (cmd->bit) {
    case CMD_RUN: return cmd_run(o);
    case CMD_CHAT: return cmd_chat(o);
    case CMD_EVAL: return cmd_eval(o);
    case CMD_INFO: return cmd_info(o);
    case CMD_TOKENIZE: return cmd_tokenize(o);
    case CMD_LOGITS: return cmd_logits(o);
    case CMD_BENCH: return cmd_bench(o);
    case CMD_CONVERT: return cmd_convert(o);
    case CMD_QUANTIZE: return cmd_quantize(o);
    case CMD_PACK: return cmd_pack(o);
    case CMD_SERVE: return cmd_serve(o);
    case CMD_TRACE: return cmd_trace(o);
    case CMD_DEVICES: return cmd_devices(o);
    default: return EXIT_FAILED;
    }
}

/* A file opened where standard output was closed would be written over. */
static void hold_standard_files(void)
{
    for (int fd = 0; fd < 3; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd ? O_RDONLY : O_WRONLY) < 0) _exit(EXIT_FAILED);
}

static int unknown_command(const char *name)
{
    size_t n;
    const opt_command *c = opt_commands(&n), *best = NULL;
    int least = (int)strlen(name) / 2 + 1;
    for (size_t i = 0; i < n; i++) {
        int d = opt_distance(name, c[i].name);
        if (d >= least) continue;
        least = d;
        best = &c[i];
    }
    if (name[0] == '-') app_error("a command comes first, as in 'llada run %s'; see llada --help", name);
    else if (best) app_error("there is no command '%s'; the nearest is '%s'", name, best->name);
    else app_error("there is no command '%s'; see llada --help", name);
    return EXIT_WRONG_USE;
}

static int dispatch(int argc, char **argv)
{
    char why[1024] = "";
    options o;
    const char *name = argc > 1 ? argv[1] : "--help";
    if (!strcmp(name, "--version")) {
        opt_version();
        return EXIT_FINE;
    }
    if (!strcmp(name, "--help") || !strcmp(name, "-h") || !strcmp(name, "help")) {
        const opt_command *about = argc > 2 ? opt_find_command(argv[2]) : NULL;
        if (argc > 2 && !strcmp(argv[2], "recipes")) {
            opt_help_recipes();
            return EXIT_FINE;
        }
        if (argc > 2 && !about) return unknown_command(argv[2]);
        if (argc > 1) {
            opt_help(about);
            return EXIT_FINE;
        }
        app_error("a command is needed, as in 'llada run -p TEXT'; see llada --help");
        return EXIT_WRONG_USE;
    }
    const opt_command *cmd = opt_find_command(name);
    if (!cmd) return unknown_command(name);
    int rc = EXIT_WRONG_USE;
    if (opt_parse(&o, cmd, argc - 2, argv + 2, environ, why, sizeof why)) {
        app_error("%s", why);
    } else if (o.help || o.version) {
        if (o.help) opt_help(cmd);
        else opt_version();
        rc = EXIT_FINE;
    } else {
        rc = run_command(cmd, &o);
    }
    opt_free(&o);
    return rc;
}

int main(int argc, char **argv)
{
    hold_standard_files();
    setlocale(LC_CTYPE, ""); /* the terminal's characters; numbers stay as in C */
    interrupt_install();
    int rc = dispatch(argc, argv);
    if (!out_check() && rc == EXIT_FINE) rc = EXIT_FAILED;
    return rc;
}
