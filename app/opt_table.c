/* opt_table.c - the sub-commands and every flag of the program that is not a key of recipes.  Spellings follow
 * llama.cpp where it has the same thing, so that hands need not learn new ones. */
#include "opt_table.h"

#include <string.h>

#define AT(field) offsetof(options, field)
#define MODEL (CMD_RUN | CMD_CHAT | CMD_EVAL | CMD_INFO | CMD_TOKENIZE | CMD_LOGITS | CMD_SERVE | CMD_BENCH)
#define ONE_RECIPE (CMD_SERVE | CMD_RUN | CMD_CHAT | CMD_BENCH)
#define SESSION (CMD_GENERATE | CMD_LOGITS)
enum { MOST_TOKENS = 65536 };

static const opt_def table[] = {
    /* model and machine */
    {"--model -m", OPT_TEXT, MODEL | CMD_PACK | CMD_DEVICES, AT(model), 0, 0, true, "FILE",
     "GGUF file (any shard of a split set); without it, the small model built in", NULL},
    {"--no-mmap", OPT_SWITCH, MODEL, AT(no_mmap), 0, 0, true, NULL,
     "read the file into memory instead of mapping it", NULL},
    {"--mem-budget", OPT_SIZE, SESSION | CMD_INFO, AT(mem_budget), 0, 0, true, "SIZE",
     "most memory for weights, keys, values and all else, as in 2G; what does not fit is read anew each pass", NULL},
    {"--plan", OPT_SWITCH, CMD_INFO, AT(plan), 0, 0, false, NULL,
     "with --mem-budget: what would stay in memory, what would stream, and how long a pass would take", NULL},
    {"--chat-layout", OPT_TEXT, MODEL, AT(chat_layout), 0, 0, true, "NAME",
     "chat layout, where the file does not tell", NULL},
    {"--threads -t", OPT_INT, SESSION | CMD_CONVERT | CMD_QUANTIZE | CMD_PACK, AT(threads), 1, LLADA_MAX_THREADS,
     true, "N", "threads (default: one per core, at most 16)", NULL},
    {"--ctx -c --ctx-size", OPT_INT, SESSION | CMD_INFO, AT(ctx), 1, LLADA_MAX_CTX, true, "N",
     "most positions, prompt and answer together", NULL},
    {"--kv", OPT_WORD, SESSION | CMD_INFO, AT(kv), 0, 0, true, "f32|f16", "how keys and values are kept", NULL},
    {"--device", OPT_TEXT, SESSION, AT(device), 0, 0, true, "cpu|npu|auto",
     "what passes run on (default auto: the NPU where there is one)", NULL},
    {"--transport", OPT_TEXT, SESSION, AT(transport), 0, 0, true, "NAME",
     "to the NPU: fastrpc (default), or an emulation: inproc, loopback:PROGRAM", NULL},
    {"--npu-memory", OPT_INT, SESSION, AT(npu_memory), 1, 1 << 20, true, "MIB",
     "most memory the NPU may have mapped at a time", NULL},
    {"--npu-few-rows", OPT_SWITCH, SESSION, AT(npu_few_rows), 0, 0, true, NULL,
     "the NPU may multiply few rows in 8-bit integers; answers then depend on how revision is executed", NULL},
    {"--cpu-mask", OPT_MASK, SESSION, AT(cpu_mask), 0, 0, true, "LIST",
     "CPU features that may be used: names with commas, none, all, or a number", NULL},

    /* the request */
    {"--prompt -p", OPT_TEXT, CMD_RUN | CMD_TOKENIZE, AT(prompt), 0, 0, false, "TEXT",
     "the prompt; without it: -f, else standard input", NULL},
    {"--file -f", OPT_TEXT, CMD_RUN | CMD_TOKENIZE, AT(file), 0, 0, false, "FILE",
     "read the prompt from a file (- is standard input)", NULL},
    {"--system -sys --system-prompt", OPT_TEXT, CMD_GENERATE & ~CMD_SERVE, AT(system), 0, 0, false, "TEXT",
     "a system message before the prompt", NULL},
    {"--raw", OPT_SWITCH, CMD_RUN | CMD_EVAL, AT(raw), 0, 0, false, NULL,
     "the prompt is plain text, not a message in the chat layout", NULL},
    {"--suffix", OPT_TEXT, CMD_RUN, AT(suffix), 0, 0, false, "TEXT",
     "the answer ends in this; what is written before it is printed", NULL},
    {"--template", OPT_TEXT, CMD_RUN, AT(template_text), 0, 0, false, "TEXT",
     "the answer with holes, {{N}} for N tokens; it is printed with them filled", NULL},
    {"--max-tokens -n --predict --n-predict", OPT_INT, CMD_GENERATE, AT(max_tokens), 0, MOST_TOKENS, true, "N",
     "most tokens of the answer, and the canvas unless --gen says else (default 128)", NULL},
    {"--seed -s", OPT_INT, CMD_GENERATE, AT(seed), -1, INT64_MAX, true, "N",
     "seed of the random numbers (default 0); -1: a random one", NULL},
    {"--recipe", OPT_RECIPE, ONE_RECIPE, 0, 0, 0, true, "NAME", "decoding recipe, NAME[:key=value,...]", NULL},
    {"--recipe", OPT_LIST, CMD_EVAL, AT(recipes), 0, 0, false, "NAME",
     "decoding recipe, NAME[:key=value,...]; may be repeated", NULL},
    {"--settings", OPT_SETTINGS, CMD_GENERATE, 0, 0, 0, true, "FILE", "JSON object of recipe keys", NULL},
    {"--set", OPT_PAIR, ONE_RECIPE, 0, 0, 0, false, "KEY=VALUE", "one recipe key", NULL},

    /* output */
    {"--json", OPT_SWITCH, CMD_BENCH | CMD_RUN | CMD_EVAL | CMD_INFO | CMD_TOKENIZE | CMD_DEVICES, AT(json), 0, 0, false, NULL,
     "JSON on standard output", NULL},
    {"--quiet -q", OPT_SWITCH, ~(unsigned)CMD_TRACE, AT(quiet), 0, 0, true, NULL,
     "no notes, no progress, no canvas", NULL},
    {"--no-canvas", OPT_SWITCH, CMD_RUN | CMD_CHAT, AT(no_canvas), 0, 0, true, NULL,
     "do not draw the canvas on the terminal", NULL},
    {"--trace", OPT_TEXT, CMD_RUN, AT(trace), 0, 0, false, "FILE", "write what each pass did, as JSON lines", NULL},

    /* eval */
    {"--set", OPT_LIST, CMD_EVAL, AT(sets), 0, 0, false, "FILE", "questions, as JSON lines; may be repeated", NULL},
    {"--limit", OPT_INT, CMD_EVAL, AT(limit), 1, 1 << 30, false, "N", "only the first N questions of each set", NULL},
    {"--extract", OPT_WORD, CMD_EVAL, AT(extract), 0, 0, false, "auto|answer|whole|json|gsm8k|story",
     "how the answer is found in the text (docs/eval.md)", NULL},
    {"--seeds", OPT_INT, CMD_EVAL, AT(seeds), 1, 1000, false, "N", "answer each question with N seeds", NULL},
    {"--markdown", OPT_TEXT, CMD_EVAL, AT(markdown), 0, 0, false, "FILE", "write the table of recipes and tasks", NULL},
    {"--svg", OPT_TEXT, CMD_EVAL, AT(svg), 0, 0, false, "FILE", "write a plot of accuracy against passes", NULL},
    {"--resume", OPT_TEXT, CMD_EVAL, AT(resume), 0, 0, false, "FILE",
     "keep every answer in FILE, and do not run again what is there", NULL},

    /* bench */
    {"--rows", OPT_TEXT, CMD_BENCH, AT(rows), 0, 0, false, "8,32,64", "forward: rows of the passes to time", NULL},
    {"--reps", OPT_INT, CMD_BENCH, AT(reps), 1, 1000, false, "N",
     "times each is run; the median counts (default 5)", NULL},
    {"--save", OPT_SWITCH, CMD_BENCH, AT(save), 0, 0, false, NULL,
     "forward: keep the times as this machine's table for bucket=auto", NULL},
    {"--limits", OPT_SWITCH, CMD_BENCH, AT(limits), 0, 0, false, NULL,
     "forward: measure the machine first, and say what share of its limit each pass reaches", NULL},
    {"--prompt", OPT_INT, CMD_BENCH, AT(prompt_tokens), 0, MOST_TOKENS, false, "N",
     "generate: tokens of the prompt (default 64)", NULL},
    {"--per-pass", OPT_INT, CMD_BENCH, AT(per_pass), 1, MOST_TOKENS, false, "K",
     "generate: write K tokens a pass, whatever the scores say (random weights have no confidence)", NULL},
    {"--trace", OPT_TEXT, CMD_BENCH, AT(trace), 0, 0, false, "FILE",
     "generate: write as many tokens a pass as a recorded run did", NULL},
    {"--without", OPT_TEXT, CMD_BENCH, AT(without), 0, 0, false, "LIST",
     "with --mem-budget: leave out residency, layout or pipeline (names with commas), for comparison", NULL},
    {"--passes", OPT_INT, CMD_BENCH, AT(most_passes), 1, 1 << 20, false, "N",
     "generate: stop after N dense passes, and say so", NULL},

    /* devices */
    {"--profile", OPT_SWITCH, CMD_DEVICES, AT(profile), 0, 0, false, NULL,
     "measure the storage that -m FILE lies on, and memory; plans of --mem-budget use it", NULL},

    /* serve */
    {"--host", OPT_TEXT, CMD_SERVE, AT(host), 0, 0, true, "NAME",
     "address to listen at (default 127.0.0.1); one that other machines reach needs an API key", NULL},
    {"--port", OPT_INT, CMD_SERVE, AT(port), 1, 65535, true, "N", "port to listen at (default 8080)", NULL},
    {"--any-port", OPT_SWITCH, CMD_SERVE, AT(any_port), 0, 0, false, NULL,
     "listen at a free port, and say which", NULL},
    {"--api-key", OPT_TEXT, CMD_SERVE, AT(api_key), 0, 0, true, "KEY",
     "clients must send it; better LLADA_API_KEY, as others can see a command line", NULL},
    {"--allow-host", OPT_LIST, CMD_SERVE, AT(allow_hosts), 0, 0, false, "NAME",
     "a further name that this server is reached by; may be repeated", NULL},
    {"--cors", OPT_LIST, CMD_SERVE, AT(origins), 0, 0, false, "ORIGIN",
     "pages of that origin may use the server too; may be repeated", NULL},
    {"--queue", OPT_INT, CMD_SERVE, AT(queue), 1, 1024, true, "N",
     "requests that may wait for the one that runs (default 16)", NULL},
    {"--metrics", OPT_SWITCH, CMD_SERVE, AT(metrics), 0, 0, true, NULL, "answer GET /metrics, for Prometheus", NULL},

    /* tokenize, logits, trace, pack */
    {"--ids", OPT_TEXT, CMD_TOKENIZE, AT(ids), 0, 0, false, "1,2,3", "ids to text, instead of text to ids", NULL},
    {"--special", OPT_SWITCH, CMD_TOKENIZE, AT(special), 0, 0, false, NULL,
     "recognise, and show, special tokens", NULL},
    {"--chat", OPT_SWITCH, CMD_TOKENIZE, AT(chat), 0, 0, false, NULL,
     "the text is one user message in the chat layout", NULL},
    {"--tokens", OPT_TEXT, CMD_LOGITS, AT(tokens), 0, 0, false, "1,2,3", "the ids to score", NULL},
    {"--out -o", OPT_TEXT, CMD_LOGITS | CMD_TRACE | CMD_PACK, AT(out), 0, 0, false, "FILE", "the file to write", NULL},

    /* convert, quantize */
    {"--type", OPT_TEXT, CMD_CONVERT, AT(type), 0, 0, false, "TYPE",
     "how matrices are stored: f16 (default), f32, bf16 or q8_0", NULL},
    {"--type", OPT_TEXT, CMD_QUANTIZE, AT(type), 0, 0, false, "TYPE",
     "q8_0, q4_0, q4_1, q5_0, q5_1, q4_k, q5_k, q6_k, mixed q4_k_m or q5_k_m, or f32, f16, bf16", NULL},
    {"--report", OPT_SWITCH, CMD_QUANTIZE, AT(report), 0, 0, false, NULL,
     "on standard output, each tensor's types and relative error", NULL},
    {"--allow-requantize", OPT_SWITCH, CMD_QUANTIZE, AT(allow_requantize), 0, 0, false, NULL,
     "also read types that have lost much already", NULL},
    {"--imatrix", OPT_TEXT, CMD_QUANTIZE, AT(imatrix), 0, 0, false, "FILE",
     "importance matrices (GGUF, or the older .dat): errors where they matter cost more", NULL},

    /* other spellings of recipe keys; llama.cpp's */
    {"--temperature", OPT_ALIAS, CMD_GENERATE, 0, 0, 0, false, "T", NULL, "temp"},
    {"--window", OPT_ALIAS, CMD_GENERATE, 0, 0, 0, false, "MODE", NULL, "mbsd"},
    {"--revise", OPT_ALIAS, CMD_GENERATE, 0, 0, 0, false, "BOOL", NULL, "dppr"},
    {"--diffusion-steps", OPT_ALIAS, CMD_GENERATE, 0, 0, 0, false, "N", NULL, "steps"},
    {"--diffusion-block-length", OPT_ALIAS, CMD_GENERATE, 0, 0, 0, false, "N", NULL, "block"},
    {"--diffusion-cfg-scale", OPT_ALIAS, CMD_GENERATE, 0, 0, 0, false, "S", NULL, "cfg"},
    {"--diffusion-eps", OPT_ALIAS, CMD_GENERATE, 0, 0, 0, false, "E", NULL, "eps"},
    {"--diffusion-alg-temp", OPT_ALIAS, CMD_GENERATE, 0, 0, 0, false, "T", NULL, "alg_temp"},
    {"--diffusion-algorithm", OPT_ALGORITHM, CMD_GENERATE, 0, 0, 0, false, "NAME", NULL, NULL},
    {"--diffusion-add-gumbel-noise", OPT_GUMBEL, CMD_GENERATE, 0, 0, 0, false, "1", NULL, NULL},
    {"--diffusion-visual", OPT_SWITCH, CMD_RUN | CMD_CHAT, AT(visual), 0, 0, false, NULL, NULL, NULL},

    {"--help -h", OPT_SWITCH, ~0u, AT(help), 0, 0, false, NULL, "this text", NULL},
    {"--version", OPT_SWITCH, ~0u, AT(version), 0, 0, false, NULL, "the version", NULL},
};

const opt_def *opt_table(size_t *n)
{
    *n = sizeof table / sizeof table[0];
    return table;
}

static const opt_command commands[] = {
    {"run", "[-m FILE] [-p TEXT | -f FILE] [flags]", "answer one prompt", CMD_RUN, 0},
    {"chat", "[-m FILE] [flags]", "talk in turns", CMD_CHAT, 0},
    {"eval", "[-m FILE] --set FILE.jsonl [--recipe NAME ...] [flags]",
     "accuracy and cost of recipes over question sets", CMD_EVAL, 0},
    {"info", "[-m FILE] [--json] [--plan --mem-budget SIZE]", "what a model file holds and needs", CMD_INFO, 1},
    {"tokenize", "[-m FILE] [-p TEXT | -f FILE | --ids 1,2,3]", "text to ids, ids to text", CMD_TOKENIZE, 1},
    {"logits", "[-m FILE] --tokens 1,2,3 --out FILE", "scores of one forward pass, as raw float32", CMD_LOGITS, 0},
    {"bench", "forward|generate [-m FILE] [flags]", "how long passes and whole answers take", CMD_BENCH, 1},
    {"convert", "DIR OUT.gguf [--type f16|f32|bf16|q8_0]",
     "a checkpoint folder (safetensors) to a GGUF file", CMD_CONVERT, 2},
    {"quantize", "IN.gguf OUT.gguf --type q4_k_m [--report]", "a GGUF file with smaller numbers", CMD_QUANTIZE, 2},
    {"pack", "-m IN.gguf -o OUT.gguf", "a GGUF file in the layout that is computed with", CMD_PACK, 0},
    {"serve", "[-m FILE] [--host NAME] [--port N] [flags]",
     "an OpenAI-compatible server, and a page to watch text form",
     CMD_SERVE, 0},
    {"devices", "[--json] [--profile -m FILE]", "what passes can run on here", CMD_DEVICES, 0},
    {"trace", "FILE -o report.html", "the report of a trace that run --trace wrote", CMD_TRACE, 1},
};

const opt_command *opt_commands(size_t *n)
{
    *n = sizeof commands / sizeof commands[0];
    return commands;
}

const opt_command *opt_find_command(const char *name)
{
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++)
        if (!strcmp(commands[i].name, name)) return &commands[i];
    return NULL;
}
