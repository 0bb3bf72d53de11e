// Gaussian filters on the lattice: plain, and ordered by scores in one pass.
#pragma once

#include <algorithm>
#include <cstdint>

#include "densecrf/lattice.hpp"
#include "densecrf/parallel.hpp"

namespace densecrf {

// The axes' blurs do not commute where vertices are missing: `kForward` blurs along axes 0 to d,
// `kSymmetric` is the mean of that and of the reverse, whose matrix is exactly symmetric.
enum class Blur { kForward, kSymmetric };

// A matrix of values whose element (channel c, pixel a) is data[c * channel_stride + a *
// pixel_stride].
template <class T>
struct Plane {
  T* data;
  std::int64_t channel_stride;
  std::int64_t pixel_stride;
};

// out_c,a (+)= factor · Σ_b k_ab in_c,b.
void filter_plain(const Lattice& lattice, Plane<const float> in, Plane<float> out, int channels,
                  Blur blur, float factor, bool accumulate, Team& team);

// How scores become levels: t = clamp((score - low) · scale, 0, levels - 1), floored if hard.
template <class Real>
struct LevelsOf {
  int count;  // H >= 2
  Real low;
  Real scale;
  bool hard;

  // Within [0, count - 1] for every score, NaN included: a level is an index.
  Real within(Real score) const {
    const Real t = (score - low) * scale, positive = t > 0 ? t : Real{0};
    const auto top = static_cast<Real>(count - 1);
    return positive < top ? positive : top;
  }
  Real of(Real score) const {
    const Real t = within(score);
    return hard ? static_cast<Real>(static_cast<int>(t)) : t;
  }
};
using Levels = LevelsOf<float>;

// What is filtered in the order of its values: rows are channels of n contiguous floats. Levels
// that a channel does not reach cost nothing.
struct Scores {
  const float* values;
  const float* offsets;  // added to the values, or null
  const float* extents;  // (channels, 2): least and largest value of each channel, offsets included
  int channels;
  Levels levels;
};

// Rows of channels, to which factor · result is added.
struct Output {
  float* values;
  float factor = 1.0f;
};

// Σ_b k_ab s(t_a, t_b), where s is the sign of the difference of whole levels and bilinear in
// between: antisymmetric and within [-1, 1]. `mass` is Σ_b k_ab.
void filter_ordered(const Lattice& lattice, const Scores& scores, const float* mass, Blur blur,
                    Output out, Team& team);

// Floats of workspace that filter_ordered takes at most.
std::int64_t ordered_workspace(const Lattice& lattice, int channels, int levels, int threads);

}  // namespace densecrf
