/* half.h - 16-bit floats: IEEE binary16 and bfloat16, to and from float.  Exact one way, round-to-nearest-even the
 * other; NaN stays NaN, values too large become infinity. */
#ifndef BASE_HALF_H
#define BASE_HALF_H

#include <stdint.h>

float half_to_float(uint16_t h);
uint16_t half_from_float(float f);
float bf16_to_float(uint16_t h);
uint16_t bf16_from_float(float f);

#endif
