/* metrics.c - counters and their text (metrics.h). */
#include "metrics.h"

static const double edges[METRICS_BUCKETS] = {0.1, 0.3, 1, 3, 10, 30, 100, 300};

void metrics_open(metrics *m)
{
    *m = (metrics){.full = 0};
    pthread_mutex_init(&m->lock, NULL);
}

void metrics_close(metrics *m) { pthread_mutex_destroy(&m->lock); }

void metrics_answer(metrics *m, int status)
{
    pthread_mutex_lock(&m->lock);
    m->answers[status >= 100 && status < 600 ? status / 100 : 0]++;
    pthread_mutex_unlock(&m->lock);
}

void metrics_full(metrics *m)
{
    pthread_mutex_lock(&m->lock);
    m->full++;
    pthread_mutex_unlock(&m->lock);
}

void metrics_job(metrics *m, job *j, bool dropped)
{
    pthread_mutex_lock(&j->lock);
    llada_status st = j->status;
    llada_result r = j->result;
    int32_t n_prompt = j->gen.n_prompt, tokens = job_count(j);
    double waited = dropped ? 0 : j->begun_at - j->queued_at;
    pthread_mutex_unlock(&j->lock);
    pthread_mutex_lock(&m->lock);
    if (st == LLADA_OK) m->done++;
    else if (st == LLADA_CANCELLED) m->left++;
    else m->failed++;
    m->dropped += dropped;
    m->waited += waited;
    m->passes += (uint64_t)r.passes;
    m->sweeps += (uint64_t)r.sweeps;
    m->rows += (uint64_t)r.rows;
    m->rev_rows += (uint64_t)r.rev_rows;
    m->revisions += (uint64_t)(r.edits + r.remasks);
    if (st == LLADA_OK) {
        int b = 0;
        while (b < METRICS_BUCKETS && r.seconds > edges[b]) b++;
        m->bucket[b]++;
        m->seconds += r.seconds;
        m->prompt_tokens += (uint64_t)n_prompt;
        m->tokens += (uint64_t)tokens;
    }
    pthread_mutex_unlock(&m->lock);
}

static void one(buf *out, const char *name, const char *type, const char *help, double v)
{
    buf_fmt(out, "# HELP llada_%s %s\n# TYPE llada_%s %s\nllada_%s %.15g\n", name, help, name, type, name, v);
}

static void histogram(const metrics *m, buf *out)
{
    uint64_t sum = 0;
    buf_str(out, "# HELP llada_request_seconds Time from the first pass to the answer.\n"
                 "# TYPE llada_request_seconds histogram\n");
    for (int i = 0; i < METRICS_BUCKETS; i++) {
        sum += m->bucket[i];
        buf_fmt(out, "llada_request_seconds_bucket{le=\"%g\"} %llu\n", edges[i], (unsigned long long)sum);
    }
    sum += m->bucket[METRICS_BUCKETS];
    buf_fmt(out, "llada_request_seconds_bucket{le=\"+Inf\"} %llu\nllada_request_seconds_sum %.9g\n"
                 "llada_request_seconds_count %llu\n", (unsigned long long)sum, m->seconds, (unsigned long long)sum);
}

void metrics_text(metrics *m, const metrics_now *now, buf *out)
{
    pthread_mutex_lock(&m->lock);
    buf_str(out, "# HELP llada_http_responses_total Answers by class of status.\n"
                 "# TYPE llada_http_responses_total counter\n");
    for (int i = 2; i < 6; i++)
        buf_fmt(out, "llada_http_responses_total{class=\"%dxx\"} %llu\n", i, (unsigned long long)m->answers[i]);
    one(out, "requests_running", "gauge", "Generations running.", now->running);
    one(out, "requests_waiting", "gauge", "Generations in line.", now->waiting);
    one(out, "connections", "gauge", "Open connections.", now->connections);
    one(out, "uptime_seconds", "gauge", "Since the server began.", now->up);
    one(out, "requests_done_total", "counter", "Generations answered.", (double)m->done);
    one(out, "requests_failed_total", "counter", "Generations that failed.", (double)m->failed);
    one(out, "requests_left_total", "counter", "Generations whose client went away.", (double)m->left);
    one(out, "requests_dropped_total", "counter", "Of these, before they ran.", (double)m->dropped);
    one(out, "requests_refused_total", "counter", "Generations refused because the line was full.", (double)m->full);
    one(out, "prompt_tokens_total", "counter", "Tokens read.", (double)m->prompt_tokens);
    one(out, "tokens_total", "counter", "Tokens of answers.", (double)m->tokens);
    one(out, "passes_total", "counter", "Dense passes.", (double)m->passes);
    one(out, "sweeps_total", "counter", "Times the weights were read.", (double)m->sweeps);
    one(out, "rows_total", "counter", "Rows of dense passes.", (double)m->rows);
    one(out, "revision_rows_total", "counter", "Rows of revision jobs.", (double)m->rev_rows);
    one(out, "revisions_total", "counter", "Tokens edited or masked again.", (double)m->revisions);
    one(out, "waited_seconds_total", "counter", "Time generations spent in line.", m->waited);
    histogram(m, out);
    pthread_mutex_unlock(&m->lock);
}
