/* test_app_opt.c - the command line: flags, numbers, environment, recipes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "app/opt.h"

enum { MOST_ARGS = 12 };

typedef struct {
    const char *command;
    const char *args[MOST_ARGS]; /* NULL-terminated */
    const char *says[3];         /* words of the sentence */
} wrong_case;

static int count(const char *const *a)
{
    int n = 0;
    while (n < MOST_ARGS && a[n]) n++;
    return n;
}

static int parse(options *o, const char *command, const char *const *args, char *const *env, char *err, size_t cap)
{
    err[0] = 0;
    return opt_parse(o, opt_find_command(command), count(args), (char *const *)args, env, err, cap);
}

static const wrong_case wrongs[] = {
    {"run", {"--steps", "128-t", "4"}, {"--steps", "128-t", "--steps 128 -t"}},
    {"run", {"--steps", "0x10"}, {"--steps", "0x10"}},
    {"run", {"--steps", "-1"}, {"--steps", "-1"}},
    {"run", {"--steps", "99999999999"}, {"--steps", "99999999999"}},
    {"run", {"--steps", " 8"}, {"--steps", "' 8'"}},
    {"run", {"--step", "8"}, {"--step", "nearest", "--steps"}},
    {"run", {"--temp", "nan"}, {"--temp", "nan"}},
    {"run", {"--temp", "1e999"}, {"--temp", "1e999"}},
    {"run", {"--seed", ""}, {"--seed", "''"}},
    {"run", {"--seed", "-2"}, {"--seed", "-2"}},
    {"run", {"--diffusion_steps", "8"}, {"--diffusion_steps", "nearest", "--diffusion-steps"}},
    {"run", {"-t", "4x"}, {"-t", "4x"}},
    {"run", {"-t", "0"}, {"-t", "1..256"}},
    {"run", {"-n", "-5"}, {"-n", "-5"}},
    {"run", {"-n", "+5"}, {"-n", "+5"}},
    {"run", {"--threds", "4"}, {"--threds", "nearest", "--threads"}},
    {"run", {"--tau-drfat", "0.9"}, {"nearest", "--tau-draft"}},
    {"run", {"--prompt"}, {"--prompt", "needs a value"}},
    {"run", {"--json=1"}, {"--json", "takes no value"}},
    {"run", {"hello"}, {"hello", "-p"}},
    {"run", {"--limit", "3"}, {"--limit", "llada eval"}},
    {"run", {"--top-k", "-4"}, {"--top-k", "-4"}},
    {"run", {"--top-p", "1.5"}, {"--top-p", "1.5"}},
    {"run", {"--diffusion-add-gumbel-noise", "0"}, {"--diffusion-add-gumbel-noise", "0"}},
    {"run", {"--diffusion-algorithm", "5"}, {"--diffusion-algorithm", "5"}},
    {"run", {"--diffusion-eps", "x"}, {"--diffusion-eps", "x"}},
    {"run", {"--recipe", "nothing"}, {"--recipe", "nothing", "vanilla"}},
    {"run", {"--recipe", "llada:tau"}, {"--recipe", "tau"}},
    {"run", {"--recipe", "llada:tua=1"}, {"--recipe", "tua"}},
    {"run", {"--recipe", "llada:tau=9"}, {"--recipe", "tau"}},
    {"run", {"--set", "tau"}, {"--set", "key=value"}},
    {"run", {"--set", "tua=0.5"}, {"--set", "tua"}},
    {"run", {"--no-tau"}, {"--no-tau"}},
    {"run", {"--kv", "f8"}, {"--kv", "f8", "f32|f16"}},
    {"run", {"--cpu-mask", "quantum"}, {"--cpu-mask", "quantum"}},
    {"run", {"--cpu-mask", "0x"}, {"--cpu-mask", "0x"}},
    {"eval", {"--extract", "regex"}, {"--extract", "regex", "gsm8k"}},
    {"info", {"a", "b"}, {"unexpected", "b"}},
};

static void errors_name_flag_and_text(void **state)
{
    for (size_t i = 0; i < sizeof wrongs / sizeof wrongs[0]; i++) {
        const wrong_case *w = &wrongs[i];
        options o;
        char err[512];
        int rc = parse(&o, w->command, w->args, NULL, err, sizeof err);
        if (rc != OPT_WRONG) print_error("'%s %s' was accepted\n", w->args[0], w->args[1] ? w->args[1] : "");
        assert_int_equal(rc, OPT_WRONG);
        for (int k = 0; k < 3 && w->says[k]; k++) {
            if (!strstr(err, w->says[k])) print_error("'%s' does not say '%s'\n", err, w->says[k]);
            assert_non_null(strstr(err, w->says[k]));
        }
        opt_free(&o);
    }
}

static void values_arrive(void **state)
{
    const char *const args[MOST_ARGS] = {"-m", "a.gguf", "--threads=3", "-p", "--odd", "-s", "9007199254740993", "--json", "-n",
                                "64", "--kv", NULL};
    const char *const with_value[] = {"--kv", "f16", "--cpu-mask", "none", "-q", NULL};
    options o;
    char err[512];
    assert_int_equal(parse(&o, "run", args, NULL, err, sizeof err), OPT_WRONG); /* --kv lacks its value */
    assert_string_equal(o.model, "a.gguf");
    assert_int_equal(o.threads, 3);
    assert_string_equal(o.prompt, "--odd");
    assert_true(o.seed == 9007199254740993);
    assert_true(o.json);
    assert_int_equal(o.max_tokens, 64);
    opt_free(&o);
    assert_int_equal(parse(&o, "run", with_value, NULL, err, sizeof err), OPT_OK);
    assert_int_equal(o.kv, 2);
    assert_true(o.cpu_mask == 0 && o.quiet && o.max_tokens == -1);
    opt_free(&o);
}

typedef struct {
    const char *args[MOST_ARGS];
    const char *env[4];
    const char *key, *value; /* of the recipe in the end */
} recipe_case;

static const recipe_case recipes[] = {
    {{"--tau", "0.5"}, {NULL}, "tau", "0.5"},
    {{"--tau_draft", "0.75"}, {NULL}, "tau_draft", "0.75"},
    {{"--tau-draft=0.75"}, {NULL}, "tau_draft", "0.75"},
    {{"--set", "tau-draft=0.75"}, {NULL}, "tau_draft", "0.75"},
    {{"--recipe", "vanilla"}, {NULL}, "rule", "quota"},
    {{"--tau", "0.5", "--recipe", "vanilla"}, {NULL}, "tau", "0.5"}, /* the order does not matter */
    {{"--recipe", "vanilla", "--recipe", "parallel"}, {NULL}, "rule", "threshold"},
    {{"--recipe", "vanilla:steps=7,block=16"}, {NULL}, "steps", "7"},
    {{"--recipe", "vanilla:steps=7", "--steps", "9"}, {NULL}, "steps", "7"},
    {{"--no-early"}, {NULL}, "early", "false"},
    {{"--early", "off"}, {NULL}, "early", "false"},
    {{"--ban-eos", "--quiet"}, {NULL}, "ban_eos", "true"},
    {{"--window", "hold"}, {NULL}, "mbsd", "hold"},
    {{"--temperature", "0.5"}, {NULL}, "temp", "0.5"},
    {{"--top-k", "0", "--top-p", "1.0"}, {NULL}, "top_p", "1"},
    {{"--diffusion-steps", "64"}, {NULL}, "rule", "quota"},
    {{"--diffusion-steps", "64"}, {NULL}, "steps", "64"},
    {{"--diffusion-block-length", "16"}, {NULL}, "block", "16"},
    {{"--diffusion-algorithm", "3"}, {NULL}, "remasking", "random"},
    {{"--diffusion-algorithm", "confidence"}, {NULL}, "rule", "quota"},
    {{"--diffusion-algorithm", "4"}, {NULL}, "rule", "quota"},
    {{"--diffusion-algorithm", "1"}, {NULL}, "rule", "dream"},
    {{"--diffusion-algorithm", "1"}, {NULL}, "alg", "entropy"},
    {{"--diffusion-algorithm", "0"}, {NULL}, "alg", "origin"},
    {{"--diffusion-eps", "0.001", "--diffusion-algorithm", "4"}, {NULL}, "rule", "dream"},
    {{"--diffusion-algorithm", "4", "--diffusion-eps", "0.001"}, {NULL}, "alg", "maskgit_plus"},
    {{"--diffusion-eps", "0", "--diffusion-block-length", "16"}, {NULL}, "rule", "quota"},
    {{"--diffusion-alg-temp", "0.5"}, {NULL}, "alg_temp", "0.5"},
    {{"--top-k", "40"}, {NULL}, "top_k", "40"},
    {{"--top-p", "0.9"}, {NULL}, "top_p", "0.9"},
    {{"--diffusion-cfg-scale", "1.5"}, {NULL}, "cfg", "1.5"},
    {{NULL}, {"LLADA_TAU=0.25"}, "tau", "0.25"},
    {{"--tau", "0.5"}, {"LLADA_TAU=0.25"}, "tau", "0.5"},
    {{NULL}, {"LLADA_RECIPE=vanilla"}, "rule", "quota"},
    {{"--recipe", "parallel"}, {"LLADA_RECIPE=vanilla"}, "rule", "threshold"},
    {{"--recipe", "vanilla"}, {"LLADA_STEPS=5"}, "steps", "5"},
    {{NULL}, {"LLADA_TAU="}, "block", "32"},
};

static void recipes_come_out(void **state)
{
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++) {
        const recipe_case *c = &recipes[i];
        options o;
        llada_recipe r;
        char err[512], value[64];
        if (parse(&o, "run", c->args, (char *const *)c->env, err, sizeof err)) print_error("%zu: %s\n", i, err);
        assert_string_equal(err, "");
        assert_int_equal(opt_recipe(&o, NULL, &r, err, sizeof err), OPT_OK);
        assert_int_equal(llada_recipe_get(&r, c->key, value, sizeof value, NULL), LLADA_OK);
        if (strcmp(value, c->value)) print_error("case %zu: %s is %s\n", i, c->key, value);
        assert_string_equal(value, c->value);
        opt_free(&o);
    }
}

static void environment_is_checked(void **state)
{
    static const char *const bad[][2] = {{"LLADA_TAU=x", "LLADA_TAU"}, {"LLADA_THREADS=0", "LLADA_THREADS"},
                                         {"LLADA_QUIET=maybe", "LLADA_QUIET"}, {"LLADA_RECIPE=x", "LLADA_RECIPE"}};
    static const char *const none[] = {NULL};
    options o;
    char err[512];
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        const char *env[] = {bad[i][0], NULL};
        assert_int_equal(parse(&o, "run", none, (char *const *)env, err, sizeof err), OPT_WRONG);
        assert_non_null(strstr(err, bad[i][1]));
        opt_free(&o);
    }
    const char *env[] = {"LLADA_MODEL=x.gguf", "LLADA_QUIET=1", "LLADA_NO_MMAP=off", "LLADA_TAU=x", NULL};
    assert_int_equal(parse(&o, "info", none, (char *const *)env, err, sizeof err), OPT_OK); /* no recipe here */
    assert_string_equal(o.model, "x.gguf");
    assert_true(o.quiet && !o.no_mmap);
    opt_free(&o);
}

/* Every key of the library is a flag, in both spellings, without being listed anywhere in the program. */
static void every_key_is_a_flag(void **state)
{
    size_t n;
    const llada_recipe_key *keys = llada_recipe_keys(&n);
    assert_true(n > 30);
    for (size_t i = 0; i < n; i++) {
        llada_recipe r;
        options o;
        char err[512], flag[64], value[64];
        llada_recipe_defaults(&r);
        assert_int_equal(llada_recipe_get(&r, keys[i].key, value, sizeof value, NULL), LLADA_OK);
        for (int dashes = 0; dashes < 2; dashes++) {
            snprintf(flag, sizeof flag, "--%s", keys[i].key);
            for (char *c = flag; dashes && *c; c++)
                if (*c == '_') *c = '-';
            const char *args[MOST_ARGS] = {flag, value, NULL};
            if (parse(&o, "eval", args, NULL, err, sizeof err)) print_error("%s\n", err);
            assert_string_equal(err, "");
            opt_free(&o);
        }
    }
}

static void settings_files(void **state)
{
    static const struct {
        const char *json, *says; /* says NULL: accepted, and tau is 0.125 */
    } files[] = {
        {"{\"tau\": 0.125, \"early\": false, \"block\": 16, \"mbsd\": \"on\", \"dppr\": \"off\"}", NULL},
        {"{\"tau\": 1.25e-1}", NULL},
        {"{\"tua\": 1}", "tua"},
        {"{\"tau\": 3}", "tau"},
        {"{\"tau\": null}", "tau"},
        {"{\"tau\": [1]}", "tau"},
        {"{\"block\": 1.5}", "block"},
        {"{\"tau\": 0.5, \"tau\": 0.6}", "tau"},
        {"{\"settings\": {\"tau\": 0.5}, \"runs\": []}", "settings"},
        {"[1]", "object"},
        {"{\"tau\": ", "line"},
        {"", "line"},
    };
    const char *path = "test_app_opt.settings.json";
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        FILE *f = fopen(path, "w");
        assert_non_null(f);
        fputs(files[i].json, f);
        fclose(f);
        const char *args[MOST_ARGS] = {"--settings", path, NULL};
        options o;
        llada_recipe r;
        char err[512];
        assert_int_equal(parse(&o, "run", args, NULL, err, sizeof err), OPT_OK);
        int rc = opt_recipe(&o, NULL, &r, err, sizeof err);
        assert_int_equal(rc, files[i].says ? OPT_WRONG : OPT_OK);
        if (files[i].says && !strstr(err, files[i].says)) print_error("'%s' does not say '%s'\n", err, files[i].says);
        if (files[i].says) assert_non_null(strstr(err, files[i].says));
        else assert_true(r.tau == 0.125);
        opt_free(&o);
    }
    remove(path);
}

static void ids_are_read_whole(void **state)
{
    static const struct {
        const char *s;
        int n; /* -1: refused */
    } lists[] = {{"1", 1}, {"1,2,3", 3}, {"[1, 2, 3]", 3}, {" 7 8\n", 2}, {"", -1}, {",", -1}, {"1,x", -1},
                 {"1,-2", -1}, {"1.5", -1}, {"2147483648", -1}, {"99999999999999999999", -1}, {"0x1", -1}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        char err[256];
        size_t n = 0;
        int32_t *ids = opt_ids("--tokens", lists[i].s, &n, err, sizeof err);
        assert_int_equal(ids ? (int)n : -1, lists[i].n);
        free(ids);
    }
}

static void distances(void **state)
{
    assert_int_equal(opt_distance("--steps", "--steps"), 0);
    assert_int_equal(opt_distance("--step", "--steps"), 1);
    assert_int_equal(opt_distance("--setps", "--steps"), 1); /* neighbours swapped */
    assert_int_equal(opt_distance("", "abc"), 3);
    assert_int_equal(opt_distance("kitten", "sitting"), 3);
}

static void help_wins_over_errors(void **state)
{
    const char *const args[MOST_ARGS] = {"--steps", "x", "--help", NULL};
    options o;
    char err[512];
    assert_int_equal(parse(&o, "run", args, NULL, err, sizeof err), OPT_OK);
    assert_true(o.help);
    opt_free(&o);
}

static void steps_without_effect_are_told(void **state)
{
    const char *const in_vain[] = {"--steps", "8", NULL}, *const used[] = {"--steps", "8", "--recipe", "vanilla", NULL};
    options o;
    llada_recipe r;
    char err[512];
    assert_int_equal(parse(&o, "run", in_vain, NULL, err, sizeof err), OPT_OK);
    assert_int_equal(opt_recipe(&o, NULL, &r, err, sizeof err), OPT_OK);
    assert_non_null(opt_recipe_note(&o, &r));
    opt_free(&o);
    assert_int_equal(parse(&o, "run", used, NULL, err, sizeof err), OPT_OK);
    assert_int_equal(opt_recipe(&o, NULL, &r, err, sizeof err), OPT_OK);
    assert_null(opt_recipe_note(&o, &r));
    opt_free(&o);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_name_flag_and_text), cmocka_unit_test(values_arrive),
        cmocka_unit_test(recipes_come_out),          cmocka_unit_test(environment_is_checked),
        cmocka_unit_test(every_key_is_a_flag),       cmocka_unit_test(settings_files),
        cmocka_unit_test(ids_are_read_whole),        cmocka_unit_test(distances),
        cmocka_unit_test(help_wins_over_errors),     cmocka_unit_test(steps_without_effect_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
