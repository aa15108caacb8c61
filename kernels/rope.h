// Rotary position: the first `rotary` numbers of a head turn by angles that grow with the position,
// in pairs (i, i + rotary/2), pair i by position theta^(-2i/rotary). Angles and their sines are
// computed in double and rounded once, because positions run to millions.
#pragma once

#include <cstdint>

namespace mneme::kernels::cpu {

// frequency[i] = theta^(-2i/rotary), [rotary / 2]; rotary is even
void RotaryFrequencies(int rotary, double theta, double* frequency);

// cosine[i], sine[i] of position * frequency[i], [pairs]
void RotaryAngles(const double* frequency, int pairs, int64_t position, float* cosine, float* sine);

// Turns head[0 .. 2 pairs); what lies behind is left alone.
void Rotate(const float* cosine, const float* sine, int pairs, float* head);

}  // namespace mneme::kernels::cpu
