/* opt_help.c - the help texts, printed from the table of flags and the library's lists. */
#include "opt_table.h"
#include "util.h"

#include <string.h>

enum { INDENT = 30, WIDTH = 100 };

/* A name, then its explanation from column INDENT on, broken at blanks. */
static void entry(text *t, const char *name, const char *about)
{
    size_t column = strlen(name) + 2;
    text_fmt(t, "  %s", name);
    if (column >= INDENT) {
        text_str(t, "\n");
        column = 0;
    }
    text_fmt(t, "%*s", (int)(INDENT - column), "");
    column = INDENT;
    for (const char *p = about; *p;) {
        size_t n = strcspn(p, " ");
        if (column > INDENT && column + 1 + n > WIDTH) {
            text_fmt(t, "\n%*s", INDENT, "");
            column = INDENT;
        } else if (column > INDENT) {
            text_str(t, " ");
            column++;
        }
        text_add(t, p, n);
        column += n;
        p += n;
        p += strspn(p, " ");
    }
    text_str(t, "\n");
}

static void flag_entry(text *t, const opt_def *d)
{
    text name = {0};
    for (const char *p = d->names; *p;) {
        size_t n = strcspn(p, " ");
        text_fmt(&name, "%s%.*s", name.n ? ", " : "", (int)n, p);
        p += n;
        p += strspn(p, " ");
    }
    if (d->arg) text_fmt(&name, " %s", d->kind == OPT_WORD ? "WORD" : d->arg);
    text about = {0};
    text_str(&about, d->help);
    if (d->kind == OPT_WORD) text_fmt(&about, ": %s", d->arg);
    entry(t, name.p, about.p);
    text_free(&name);
    text_free(&about);
}

/* Those that are asked for most. */
static void common_keys(text *t)
{
    static const struct {
        const char *flag, *about;
    } common[] = {{"--block N", "positions that are written together, one block after the other"},
                  {"--steps N", "denoising steps, for recipes that count them (vanilla, prefix, dual, dream)"},
                  {"--tau P", "confidence a token needs to be written: lower is faster"},
                  {"--temp T", "0 takes the most likely token"},
                  {"--top-k N, --top-p P", "sample among the likeliest only"}};
    size_t n;
    const char *const *names = llada_recipe_names(&n);
    llada_recipe r;
    llada_recipe_defaults(&r);
    text_str(t, "\nRecipes (--recipe NAME[:key=value,...]): ");
    for (size_t i = 0; i < n; i++) text_fmt(t, "%s%s", i ? ", " : "", names[i]);
    text_fmt(t, " (default: %s)\n\n"
                "Every key of a recipe is a flag; these are asked for most (llada help recipes has all):\n", r.name);
    for (size_t i = 0; i < sizeof common / sizeof *common; i++) entry(t, common[i].flag, common[i].about);
}

static void recipe_keys(text *t)
{
    size_t n;
    const char *const *names = llada_recipe_names(&n);
    text_str(t, "Recipes: ");
    for (size_t i = 0; i < n; i++) text_fmt(t, "%s%s", i ? ", " : "", names[i]);
    llada_recipe r;
    llada_recipe_defaults(&r);
    text_fmt(t, " (default: %s)\n\nKeys of a recipe, each a flag (in brackets: the value in '%s'):\n", r.name, r.name);
    const llada_recipe_key *keys = llada_recipe_keys(&n);
    for (size_t i = 0; i < n; i++) {
        char value[64] = "";
        text name = {0}, about = {0};
        text_fmt(&name, "--%s", keys[i].key);
        for (size_t k = 2; k < name.n; k++)
            if (name.p[k] == '_') name.p[k] = '-';
        llada_recipe_get(&r, keys[i].key, value, sizeof value, NULL);
        text_fmt(&about, "%s; %s [%s]", keys[i].help, keys[i].values, value);
        entry(t, name.p, about.p);
        text_free(&name);
        text_free(&about);
    }
    text_str(t, "  Keys that are true or false also have a form --no-KEY.\n"
                "\nSpellings of llama.cpp are understood: --diffusion-steps, --diffusion-block-length,\n"
                "--diffusion-algorithm, --diffusion-cfg-scale and others; they choose the recipe 'vanilla'.\n");
}

static void command_help(text *t, const opt_command *cmd)
{
    size_t n;
    const opt_def *table = opt_table(&n);
    text_fmt(t, "llada %s %s\n%s\n\n", cmd->name, cmd->args, cmd->about);
    for (size_t i = 0; i < n; i++)
        if ((table[i].cmds & cmd->bit) && table[i].help) flag_entry(t, &table[i]);
    if (cmd->bit & CMD_GENERATE) common_keys(t);
    text_str(t, "\nA variable LLADA_NAME stands for the flag --name (LLADA_MODEL, LLADA_THREADS, LLADA_TAU, ...);\n"
                "the flag wins.\n");
}

static void program_help(text *t)
{
    size_t n;
    const opt_command *c = opt_commands(&n);
    text_str(t, "llada - diffusion language models (LLaDA, Dream) on this machine\n\nusage: llada COMMAND [flags]\n\n");
    for (size_t i = 0; i < n; i++) entry(t, c[i].name, c[i].about);
    entry(t, "--help, --version", "");
    text_str(t, "\n  llada run -p \"Evaluate 3*6+13.\"          answers with the small model built in\n"
                "  llada run -m LLaDA-8B.gguf -p \"...\"       answers with yours\n"
                "  llada COMMAND --help                     tells its flags\n"
                "  llada help recipes                       how answers are made, and every setting of it\n"
                "\nExit codes: 0 fine, 1 failed, 2 wrong use or a file that cannot be run, 130 stopped by Ctrl-C.\n");
}

void opt_help_recipes(void)
{
    text t = {0};
    recipe_keys(&t);
    out_write(t.p, t.n);
    text_free(&t);
}

void opt_help(const opt_command *cmd)
{
    text t = {0};
    if (cmd) command_help(&t, cmd);
    else program_help(&t);
    out_write(t.p, t.n);
    text_free(&t);
}

void opt_version(void)
{
    text t = {0};
    text_fmt(&t, "llada %s\n", llada_version());
    out_write(t.p, t.n);
    text_free(&t);
}
