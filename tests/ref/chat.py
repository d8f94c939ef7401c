#!/usr/bin/python3
"""chat.py OUT.json - conversations as published chat templates render them, by jinja2 (Debian: python3-jinja2), for
tests/unit/test_chat_templates.c.

The templates are written down here from what the published ones say, cut to what a conversation without tools meets:
roles, their order, white space, the default system message."""
import json
import sys

import jinja2

LOOP = """{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + message['role'] + '<|end_header_id|>

'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>

' }}{% endif %}"""

CHATML = """{%- if tools %}
    {{- '<|im_start|>system\\n# Tools' }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>system\\nSYSTEM<|im_end|>\\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant") %}
        {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""

ROLES = """{% for message in messages %}{% set role = message['role'] | lower %}{% if role == 'user' %}{% set role = 'HUMAN' %}{% endif %}{% set role = role | upper %}{{ '<role>' + role + '</role>' + message['content'] + '<|role_end|>' }}{% endfor %}{% if add_generation_prompt %}{{ '<role>ASSISTANT</role>' }}{% endif %}"""

THINKING = """{% set thinking_option = 'off' %}
{{- '<role>SYSTEM</role>' }}
{%- if messages[0].role == 'system' %}
    {{- messages[0].content + '\\n' }}
{%- endif %}
{{- 'detailed thinking ' + thinking_option + '<|role_end|>' }}
{%- for message in messages %}
    {%- if message.role == "user" %}
        {{- '<role>HUMAN</role>' + message.content + '<|role_end|>' }}
    {%- elif message.role == "system" and not loop.first %}
        {{- '<role>SYSTEM</role>' + message.content + '<|role_end|>' }}
    {%- elif message.role == "assistant" %}
        {{- '<role>ASSISTANT</role>' + message.content + '<|role_end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<role>ASSISTANT</role>' }}
{%- endif %}
"""

# model, layout, template, first token, special tokens
MODELS = [
    ("LLaDA-8B-Instruct", "llada", LOOP, "<|startoftext|>",
     ["<|startoftext|>", "<|endoftext|>", "<|mdm_mask|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    ("Llama-3-8B-Instruct", "llama3", LOOP, "<|begin_of_text|>",
     ["<|begin_of_text|>", "<|end_of_text|>", "<|mask|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    ("Dream-v0-Instruct-7B", "chatml", CHATML.replace("SYSTEM", "You are a helpful assistant."), None,
     ["<|beginoftext|>", "<|endoftext|>", "<|mask|>", "<|im_start|>", "<|im_end|>", "<tool_call>"]),
    ("Qwen2.5-7B-Instruct", "chatml",
     CHATML.replace("SYSTEM", "You are Qwen, created by Alibaba Cloud. You are a helpful assistant."), None,
     ["<|beginoftext|>", "<|endoftext|>", "<|mask|>", "<|im_start|>", "<|im_end|>", "<tool_call>"]),
    ("LLaDA-MoE-7B-A1B-Instruct", "llada-moe", ROLES, None,
     ["<|startoftext|>", "<|endoftext|>", "<|mask|>", "<role>", "</role>", "<|role_end|>"]),
    ("Ling-2.0", "llada-moe", THINKING, None,
     ["<|startoftext|>", "<|endoftext|>", "<|mask|>", "<role>", "</role>", "<|role_end|>"]),
]

CONVERSATIONS = [
    [("user", "hi")],
    [("user", "What is 2 + 2?\n\nThink\tfirst, then say: \"4\".")],
    [("system", "Be brief."), ("user", "the other one")],
    [("user", "a"), ("assistant", "b\n c"), ("user", "d")],
    [("system", "s"), ("user", "a"), ("assistant", "b"), ("user", "the end"), ("assistant", "e"), ("user", "f")],
    [("user", "a"), ("system", "from now on: French"), ("user", "b")],
    [("user", "na\u00efve \u6a21\u578b \U0001f642 \u00e9t\u00e9")],
    [("user", "")],
]
PADDED = [("user", " \n padded\t\n"), ("assistant", "\u00a0b\u3000"), ("user", "  ")]  # where the template trims


def main():
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    out = []
    for model, layout, template, bos, specials in MODELS:
        chats = CONVERSATIONS + ([PADDED] if "trim" in template else [])
        cases = []
        for chat in chats:
            messages = [{"role": r, "content": c} for r, c in chat]
            text = env.from_string(template).render(messages=messages, bos_token=bos, add_generation_prompt=True, tools=None)
            cases.append({"messages": chat, "text": text})
        out.append({"model": model, "layout": layout, "template": template, "specials": specials, "cases": cases})
    with open(sys.argv[1], "w") as f:
        json.dump(out, f, indent=0)
        f.write("\n")


main()
