// What the tests share: assertions with a message, random numbers, small dense matrices.
#pragma once

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "densecrf/filter.hpp"
#include "densecrf/lattice.hpp"

#define CHECK(condition)                                                           \
  do {                                                                             \
    if (!(condition)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      std::exit(1);                                                                \
    }                                                                              \
  } while (false)

#define CHECK_NEAR(a, b, tolerance)                                                            \
  do {                                                                                         \
    const double left_ = (a), right_ = (b);                                                    \
    if (!(std::fabs(left_ - right_) <= (tolerance))) {                                         \
      std::fprintf(stderr, "%s:%d: %s = %.9g, %s = %.9g\n", __FILE__, __LINE__, #a, left_, #b, \
                   right_);                                                                    \
      std::exit(1);                                                                            \
    }                                                                                          \
  } while (false)

namespace densecrf::test {

using Matrix = std::vector<double>;  // n × n, row-major

inline std::vector<float> random_floats(std::size_t size, unsigned seed, float scale = 1) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> uniform(0, scale);
  std::vector<float> out(size);
  for (float& value : out) value = uniform(generator);
  return out;
}

// The matrix of a lattice's filter, by filtering the unit vectors.
inline Matrix matrix_of(const Lattice& lattice, Blur blur, Team& team) {
  const auto n = static_cast<std::size_t>(lattice.pixels());
  std::vector<float> unit(n * n, 0.0f), out(n * n);
  for (std::size_t a = 0; a < n; ++a) unit[a * n + a] = 1;
  const auto stride = static_cast<std::int64_t>(n);
  filter_plain(lattice, {unit.data(), stride, 1}, {out.data(), stride, 1}, static_cast<int>(n),
               blur, 1.0f, false, team);
  Matrix matrix(n * n);
  for (std::size_t a = 0; a < n; ++a)
    for (std::size_t b = 0; b < n; ++b) matrix[a * n + b] = out[b * n + a];
  return matrix;
}

// Σ_b k_ab s(t_a, t_b), s the sign of whole levels and bilinear in between.
inline double ordered_row(const Matrix& matrix, const std::vector<float>& t, std::size_t a) {
  const std::size_t n = t.size();
  const auto share = [](double level, int h) { return std::fmax(0, 1 - std::fabs(level - h)); };
  double sum = 0;
  for (std::size_t b = 0; b < n; ++b) {
    double sign = 0;
    for (int h = static_cast<int>(t[a]); h <= static_cast<int>(t[a]) + 1; ++h)
      for (int g = static_cast<int>(t[b]); g <= static_cast<int>(t[b]) + 1; ++g)
        sign += share(t[a], h) * share(t[b], g) * ((h > g) - (h < g));
    sum += matrix[a * n + b] * sign;
  }
  return sum;
}

}  // namespace densecrf::test
