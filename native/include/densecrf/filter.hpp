// Gaussian filtering on the lattice: plain, and ordered by scores in one pass.
#pragma once

#include <algorithm>
#include <cstdint>

#include "densecrf/lattice.hpp"
#include "densecrf/parallel.hpp"

namespace densecrf {

// The order of the blurs. Missing vertices make the axes' blurs not commute; `kSymmetric` is the
// mean of both orders, whose matrix is exactly symmetric.
enum class BlurOrder { kForward, kSymmetric };

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
                  BlurOrder order, float factor, bool accumulate, Team& team);

// How scores become levels: t = clamp((score - low) · scale, 0, levels - 1), floored if hard.
struct Levels {
  int count;  // H >= 2
  float low;
  float scale;
  bool hard;

  // Within [0, count - 1] for every score, NaN included: a level is an index.
  float within(float score) const {
    const float t = (score - low) * scale, positive = t > 0 ? t : 0.0f;
    const auto top = static_cast<float>(count - 1);
    return positive < top ? positive : top;
  }
  float of(float score) const {
    const float t = within(score);
    return hard ? static_cast<float>(static_cast<int>(t)) : t;
  }
};

// out_c,a (+)= factor · Σ_b k_ab s(t_a, t_b), where s is the sign of the difference of whole levels
// and bilinear in between: antisymmetric and within [-1, 1]. `mass` is Σ_b k_ab. Rows of `scores`
// and `out` are channels of n contiguous floats; `extents` are the least and the largest score of
// each: levels that a channel does not reach cost nothing. Where there are `offsets`, they are
// added to the scores first (and are in the extents).
void filter_ordered(const Lattice& lattice, const float* scores, const float* offsets,
                    const float* extents, float* out, int channels, Levels levels,
                    const float* mass, BlurOrder order, float factor, bool accumulate, Team& team);

// Floats of workspace that filter_ordered takes at most.
std::int64_t ordered_workspace(const Lattice& lattice, int channels, int levels, int threads);

}  // namespace densecrf
