// The dense ops written out longhand in double precision: the definitions that kernels are held to.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace mneme::support {

using Doubles = std::vector<double>;

inline Doubles ToDoubles(const std::vector<float>& floats) {
  return {floats.begin(), floats.end()};
}

// out[n, o] = sum_i x[n, i] w[o, i]
inline Doubles MatrixProductOf(const Doubles& x, const std::vector<float>& w, int64_t rows,
                               int64_t outputs, int64_t inputs) {
  Doubles out(static_cast<size_t>(rows * outputs));
  for (int64_t n = 0; n < rows; ++n) {
    for (int64_t o = 0; o < outputs; ++o) {
      double sum = 0;
      for (int64_t i = 0; i < inputs; ++i)
        sum += x[static_cast<size_t>(n * inputs + i)] *
               static_cast<double>(w[static_cast<size_t>(o * inputs + i)]);
      out[static_cast<size_t>(n * outputs + o)] = sum;
    }
  }
  return out;
}

// x / sqrt(mean x^2 + epsilon) (offset + weight), row by row
inline Doubles OffsetNormOf(const Doubles& x, const std::vector<float>& weight, double epsilon,
                            double offset) {
  Doubles out(x.size());
  const size_t size = weight.size();
  for (size_t row = 0; row < x.size(); row += size) {
    double squares = 0;
    for (size_t i = 0; i < size; ++i) squares += x[row + i] * x[row + i];
    const double scale = 1.0 / std::sqrt(squares / static_cast<double>(size) + epsilon);
    for (size_t i = 0; i < size; ++i)
      out[row + i] = x[row + i] * scale * (offset + static_cast<double>(weight[i]));
  }
  return out;
}

inline Doubles ZeroCentredNormOf(const Doubles& x, const std::vector<float>& weight,
                                 double epsilon) {
  return OffsetNormOf(x, weight, epsilon, 1.0);
}
inline Doubles PlainNormOf(const Doubles& x, const std::vector<float>& weight, double epsilon) {
  return OffsetNormOf(x, weight, epsilon, 0.0);
}

inline double SigmoidOf(double x) { return 1.0 / (1.0 + std::exp(-x)); }
inline double SiluOf(double x) { return x * SigmoidOf(x); }

}  // namespace mneme::support
