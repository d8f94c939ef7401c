/* answer.c - the smallest program that uses the library: asks one question and prints the answer.
 *     cc answer.c $(pkg-config --cflags --libs llada) && ./a.out "What is 4*9+57?" [model.gguf]
 * After an installation outside the system's folders: PKG_CONFIG_PATH=PREFIX/lib/.../pkgconfig for the first, and
 * LD_LIBRARY_PATH=PREFIX/lib/... (or ldconfig) for the second. */
#include <llada.h>
#include <stdio.h>
#include <stdlib.h>

#define MAX_IDS 4096

static void die(const char *sentence)
{
    fprintf(stderr, "%s\n", sentence);
    exit(1);
}

int main(int argc, char **argv)
{
    static int32_t ids[MAX_IDS];
    llada_err err;
    llada_model *model = NULL;
    llada_session *session = NULL;
    llada_recipe recipe;
    llada_request ask;
    llada_result answer;
    size_t n, len;

    if (argc < 2) die("usage: answer QUESTION [MODEL.gguf]");

    /* No file named: the small model inside the library. */
    if (llada_model_open(&model, argc > 2 ? argv[2] : NULL, NULL, &err)) die(err.text);

    llada_message message = { "user", argv[1] };
    if (llada_chat(model, &message, 1, ids, MAX_IDS, &n, &err)) die(err.text);
    if (n > MAX_IDS) die("the question is too long");

    llada_session_opts opts;
    llada_session_opts_defaults(&opts);
    llada_recipe_for(&recipe, model); /* the model's own default */
    if (llada_session_open(&session, model, &recipe, &opts, &err)) die(err.text);

    llada_request_defaults(&ask);
    ask.prompt = ids;
    ask.n_prompt = (int32_t)n;
    if (llada_generate(session, &ask, &answer, &err)) die(err.text);

    /* Ask for the length, then for the bytes. */
    if (llada_detokenize(model, answer.tokens, (size_t)answer.n_tokens, false, NULL, 0, &len, &err)) die(err.text);
    char *text = malloc(len + 1);
    if (!text) die("out of memory");
    if (llada_detokenize(model, answer.tokens, (size_t)answer.n_tokens, false, text, len, &len, &err)) die(err.text);
    printf("%.*s\n", (int)len, text);

    free(text);
    llada_session_close(&session);
    llada_model_close(&model);
    return 0;
}
