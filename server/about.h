/* about.h - what a server says of its model and itself. */
#ifndef SERVER_ABOUT_H
#define SERVER_ABOUT_H

#include "openai.h"

json_t *about_models(const openai_ground *g); /* the list of the OpenAI API */
json_t *about_server(const openai_ground *g); /* the model, its sizes, the recipes, every key with its range */

#endif
