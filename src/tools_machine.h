/* tools_machine.h - the part of tools.h's machine limits that needs the model's record. */
#ifndef TOOLS_MACHINE_H
#define TOOLS_MACHINE_H

#include "model/model.h"
#include "tools.h"

void machine_pass_work(const graph *g, tools_work *out);

#endif
