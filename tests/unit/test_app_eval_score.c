/* test_app_eval_score.c - extraction rules, intervals and paired differences of eval. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "app/eval.h"

typedef struct {
    extract_rule rule;
    const char *answer, *said;
    bool right;
} score_case;

static const score_case cases[] = {
    {EXTRACT_ANSWER, "31", "3*6=18. 18+13=31. Answer: 31", true},
    {EXTRACT_ANSWER, "31", "Answer: 31\n", true},
    {EXTRACT_ANSWER, "31", "  Answer:31", true},
    {EXTRACT_ANSWER, "31", "Answer: 13. Answer: 31", true}, /* the last one counts */
    {EXTRACT_ANSWER, "31", "Answer: 31. Answer: 13", false},
    {EXTRACT_ANSWER, "31", "Answer: 31.", false},
    {EXTRACT_ANSWER, "31", "Answer: 310", false},
    {EXTRACT_ANSWER, "31", "It is 31", false},
    {EXTRACT_ANSWER, "31", "", false},
    {EXTRACT_WHOLE, "4, 25, 51", "4, 25, 51", true},
    {EXTRACT_WHOLE, "4, 25, 51", "\n4, 25, 51 ", true},
    {EXTRACT_WHOLE, "4, 25, 51", "4,25,51", false},
    {EXTRACT_WHOLE, "July", "july", false},
    {EXTRACT_WHOLE, "July", "", false},
    {EXTRACT_JSON, "{\"a\": 1, \"b\": \"x\"}", "{\"b\":\"x\",\"a\":1}", true},
    {EXTRACT_JSON, "{\"a\": 1}", "{\"a\": \"1\"}", false},
    {EXTRACT_JSON, "{\"a\": 1}", "{\"a\": 1", false},
    {EXTRACT_JSON, "{\"a\": 1}", "{\"a\": 1} done", false},
    {EXTRACT_JSON, "{\"a\": 1}", "", false},
    {EXTRACT_GSM8K, "18", "She makes 9 * 2 = $18 a day.\n#### 18", true},
    {EXTRACT_GSM8K, "Steps: 1, 2.\n#### 18", "#### 18", true},
    {EXTRACT_GSM8K, "18", "#### $18.00", true},
    {EXTRACT_GSM8K, "1234", "#### 1,234", true},
    {EXTRACT_GSM8K, "1,234", "#### 1234.", true},
    {EXTRACT_GSM8K, "18", "The answer is 18.", true},
    {EXTRACT_GSM8K, "18", "She has 16, so 18 dollars.", true},
    {EXTRACT_GSM8K, "18", "Answer: 18 dollars, from 16 eggs", true},
    {EXTRACT_GSM8K, "18", "Answer: 16. #### 18", true},
    {EXTRACT_GSM8K, "18", "18 of 20", false},
    {EXTRACT_GSM8K, "-3", "It is -3", true},
    {EXTRACT_GSM8K, "3", "10-3", true},     /* a minus between numbers is no sign */
    {EXTRACT_GSM8K, "0.5", "#### 0.50", true},
    {EXTRACT_GSM8K, "5", "#### 0.5", false},
    {EXTRACT_GSM8K, "100", "#### 10", false},
    {EXTRACT_GSM8K, "007", "7", true},
    {EXTRACT_GSM8K, "18", "none", false},
    {EXTRACT_GSM8K, "18", "", false},
};

static void rules_judge(void **state)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const score_case *c = &cases[i];
        bool right = extract_correct(c->rule, "", c->answer, c->said, strlen(c->said));
        if (right != c->right) print_error("%s: '%s' against '%s'\n", extract_name(c->rule), c->said, c->answer);
        assert_int_equal(right, c->right);
    }
}

#define FORTY                                                                                                          \
    "Once upon a time there was a tired mouse named Anna. Every day she played in the house. Anna had a pink coin "    \
    "and she took it everywhere. But the wind took the coin away. She asked everyone for help and then found it"

static void stories(void **state)
{
    static const struct {
        const char *prompt, *said;
        bool right;
    } s[] = {
        {"Write a short story about a mouse named Anna and a pink coin.", FORTY ".", true},
        {"Write a short story about a mouse named Anna and a pink coin.", FORTY, false},          /* no full stop */
        {"Write a short story about a mouse named Anna and a pink coin.", "Anna. pink coin.", false}, /* too short */
        {"Write a short story about a mouse named Emma and a pink coin.", FORTY ".", false},
        {"Write a short story about a mouse named Anna and a blue coin.", FORTY ".", false},
        {"Write a short story about a mouse named Anna and a pink ball.", FORTY ".", false},
        {"Write a short story about a mouse named Ann and a pink coin.", FORTY ".", false}, /* whole words */
        {"Tell a story about a mouse called Anna in the house.", FORTY ".\n", true},
    };
    for (size_t i = 0; i < sizeof s / sizeof s[0]; i++)
        assert_int_equal(extract_correct(EXTRACT_STORY, s[i].prompt, NULL, s[i].said, strlen(s[i].said)), s[i].right);
}

static void text_may_hold_anything(void **state)
{
    static const char bytes[] = "\0\xff Answer: 3\0" "1";
    assert_false(extract_correct(EXTRACT_ANSWER, "", "3", bytes, sizeof bytes - 1));
    assert_true(extract_correct(EXTRACT_GSM8K, "", "3", bytes, sizeof bytes - 1));
    assert_false(extract_correct(EXTRACT_JSON, "", "{}", bytes, sizeof bytes - 1));
}

static void auto_chooses(void **state)
{
    static const struct {
        const char *file, *answer, *reference;
        extract_rule rule;
    } c[] = {
        {"eval/arith.jsonl", "31", "3*6=18. 18+13=31. Answer: 31", EXTRACT_ANSWER},
        {"eval/arith.jsonl", "31", NULL, EXTRACT_ANSWER},
        {"eval/sort.jsonl", "1, 2", "1, 2", EXTRACT_WHOLE},
        {"eval/words.jsonl", "3", "3", EXTRACT_WHOLE},
        {"eval/json.jsonl", "{\"a\": 1}", "{\"a\": 1}", EXTRACT_JSON},
        {"eval/story.jsonl", NULL, "Once.", EXTRACT_STORY},
        {"gsm8k-test-200.jsonl", "18", NULL, EXTRACT_GSM8K},
        {"mine.jsonl", "18", "so.\n#### 18", EXTRACT_GSM8K},
        {"mine.jsonl", "so.\n#### 18", NULL, EXTRACT_GSM8K},
        {"gsm8k/words.jsonl", "3", "3", EXTRACT_WHOLE}, /* the file's name, not its folder's */
    };
    for (size_t i = 0; i < sizeof c / sizeof c[0]; i++) {
        assert_int_equal(extract_choose(EXTRACT_AUTO, c[i].file, c[i].answer, c[i].reference), c[i].rule);
        assert_int_equal(extract_choose(EXTRACT_UNSAID, c[i].file, c[i].answer, c[i].reference), c[i].rule);
        assert_int_equal(extract_choose(EXTRACT_WHOLE, c[i].file, c[i].answer, c[i].reference), EXTRACT_WHOLE);
    }
}

/* Against values computed apart from this program (the closed form of Wilson's interval, z = 1.959964). */
static void wilson(void **state)
{
    static const struct {
        int correct, n;
        double low, high;
    } w[] = {{0, 10, 0, 0.277533}, {10, 10, 0.722467, 1}, {5, 10, 0.236593, 0.763407}, {85, 100, 0.767163, 0.906939},
             {240, 300, 0.751071, 0.841343}};
    for (size_t i = 0; i < sizeof w / sizeof w[0]; i++) {
        double low, high;
        eval_interval(w[i].correct, w[i].n, &low, &high);
        print_message("%d of %d: %.6f to %.6f\n", w[i].correct, w[i].n, low, high);
        assert_true(fabs(low - w[i].low) < 1e-5 && fabs(high - w[i].high) < 1e-5);
    }
}

static void paired(void **state)
{
    eval_answer a[4] = {{.correct = true}, {.correct = true}, {.correct = false}, {.correct = true}};
    eval_answer b[4] = {{.correct = true}, {.correct = false}, {.correct = false}, {.correct = false}};
    double d, se;
    eval_paired(a, b, 4, &d, &se);
    assert_true(fabs(d - 0.5) < 1e-12);
    assert_true(fabs(se - sqrt((2 - 1.0) / 3 / 4)) < 1e-12); /* deviations 0,1,0,1: variance 1/3 */
    eval_paired(a, a, 4, &d, &se);
    assert_true(d == 0 && se == 0);
    eval_paired(a, b, 0, &d, &se);
    assert_true(d == 0 && se == 0);
}

static void sums_count_the_end_token(void **state)
{
    eval_sum s = {0};
    eval_add(&s, &(eval_answer){.correct = true, .end = true, .tokens = 9, .passes = 2, .rows = 100});
    eval_add(&s, &(eval_answer){.tokens = 10, .passes = 3, .rows = 50});
    assert_int_equal(s.n, 2);
    assert_int_equal(s.tokens, 20);
    assert_int_equal(s.passes, 5);
    assert_true(eval_accuracy(&s) == 0.5);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_judge), cmocka_unit_test(stories), cmocka_unit_test(text_may_hold_anything),
        cmocka_unit_test(auto_chooses), cmocka_unit_test(wilson), cmocka_unit_test(paired),
        cmocka_unit_test(sums_count_the_end_token),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
