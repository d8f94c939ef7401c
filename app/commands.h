/* commands.h - the sub-commands.  Each returns the program's exit code and has printed why when that is not 0. */
#ifndef APP_COMMANDS_H
#define APP_COMMANDS_H

#include "opt.h"

int cmd_run(const options *o);
int cmd_chat(const options *o);
int cmd_eval(const options *o);
int cmd_info(const options *o);
int cmd_tokenize(const options *o);
int cmd_logits(const options *o);
int cmd_bench(const options *o);
int cmd_convert(const options *o);
int cmd_quantize(const options *o);
int cmd_pack(const options *o);
int cmd_serve(const options *o);
int cmd_trace(const options *o);
int cmd_devices(const options *o);

#endif
