#include "kernels/rope.h"

#include <cmath>

namespace mneme::kernels::cpu {

void RotaryFrequencies(int rotary, double theta, double* frequency) {
  for (int i = 0; i < rotary / 2; ++i) frequency[i] = std::pow(theta, -2.0 * i / rotary);
}

void RotaryAngles(const double* frequency, int pairs, int64_t position, float* cosine,
                  float* sine) {
  for (int i = 0; i < pairs; ++i) {
    const double angle = static_cast<double>(position) * frequency[i];
    cosine[i] = static_cast<float>(std::cos(angle));
    sine[i] = static_cast<float>(std::sin(angle));
  }
}

void Rotate(const float* cosine, const float* sine, int pairs, float* head) {
  for (int i = 0; i < pairs; ++i) {
    const float a = head[i];
    const float b = head[pairs + i];
    head[i] = a * cosine[i] - b * sine[i];
    head[pairs + i] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace mneme::kernels::cpu
