// The diagonal of the filter's matrix, exactly.
#include <algorithm>
#include <cmath>
#include <vector>

#include "densecrf/lattice.hpp"

namespace densecrf {

namespace {

// Which axes: all bits set or none.
using Axes = std::int32_t[kMaxDimension + 1];

// Follows the one path that steps along the chosen axes, in ascending order; whether it leads from
// one vertex to the other, none on the way missing. Without branches: most paths end nowhere, which
// none could predict.
int leads(const Topology& t, std::int32_t from, std::int32_t to, const Axes& chosen, int side) {
  std::int32_t at = from;
  for (int j = 0; j <= t.dimension; ++j) {
    const std::int32_t next = t.axis(j)[2 * static_cast<std::int64_t>(at) + side];
    at = (next & chosen[j]) | (at & ~chosen[j]);
  }
  return at == to;
}

// Entries of the blurs' product between the corners of simplices, both orders averaged.
//
// Corners k and l > k differ by one step along each axis of rank d-l+1 .. d-k; since steps along
// all d+1 axes cancel, the complement of those axes leads back the other way. The reversed order
// walks the same paths backwards, so the mean of both orders is the mean of both directions.
//
// Pixels near each other often share a simplex: the last few are remembered, by their corners.
class Simplices {
 public:
  explicit Simplices(const Topology& topology)
      : t_(topology),
        corners_(topology.dimension + 1),
        axis_of_rank_(static_cast<std::size_t>(corners_)),
        vertices_(static_cast<std::size_t>(kRemembered * corners_), -1),
        entries_(static_cast<std::size_t>(kRemembered * corners_ * corners_)) {
    std::fill(all_, all_ + corners_, ~0);
  }

  // Entries (k, l), k <= l, for pixel a.
  const float* of(std::int64_t a) {
    std::uint32_t hash = 0;
    for (int k = 0; k < corners_; ++k)
      hash = (hash ^ static_cast<std::uint32_t>(t_.corner[k * t_.pixels + a])) * 0x9E3779B1u;
    const auto place = static_cast<std::size_t>(hash >> (32 - kBits));
    vertex_ = vertices_.data() + place * static_cast<std::size_t>(corners_);
    entry_ = entries_.data() + place * static_cast<std::size_t>(corners_ * corners_);
    bool same = true;
    for (int k = 0; k < corners_; ++k) same = same && vertex_[k] == t_.corner[k * t_.pixels + a];
    if (!same) compute(a);
    return entry_;
  }

 private:
  static constexpr int kBits = 10, kRemembered = 1 << kBits;

  void compute(std::int64_t a) {
    for (int i = 0; i < corners_; ++i) {
      vertex_[i] = t_.corner[i * t_.pixels + a];
      axis_of_rank_[t_.rank[i * t_.pixels + a]] = static_cast<std::size_t>(i);
    }
    for (int k = 0; k < corners_; ++k) {
      const std::int32_t at = vertex_[k];
      entry_[k * corners_ + k] =
          1 + half_to_the(corners_) *
                  static_cast<float>(leads(t_, at, at, all_, 0) + leads(t_, at, at, all_, 1));
      Axes inside = {}, outside;
      std::copy(all_, all_ + corners_, outside);
      for (int l = k + 1; l < corners_; ++l) {
        const std::size_t axis = axis_of_rank_[static_cast<std::size_t>(corners_ - l)];
        inside[axis] = ~0;
        outside[axis] = 0;
        const std::int32_t to = vertex_[l];
        const auto paths = [&](const Axes& axes, int there) {
          return static_cast<float>(leads(t_, at, to, axes, there) +
                                    leads(t_, to, at, axes, 1 - there));
        };
        entry_[k * corners_ + l] = 0.5f * (half_to_the(l - k) * paths(inside, 1) +
                                           half_to_the(corners_ - (l - k)) * paths(outside, 0));
      }
    }
  }

  static float half_to_the(int steps) { return std::ldexp(1.0f, -steps); }

  const Topology& t_;
  int corners_;
  Axes all_;
  std::vector<std::size_t> axis_of_rank_;
  std::vector<std::int32_t> vertices_;
  std::vector<float> entries_;
  std::int32_t* vertex_ = nullptr;
  float* entry_ = nullptr;
};

}  // namespace

void Lattice::diagonal(float* out, Team& team) const {
  const std::int64_t n = pixels();
  const int corners = dimension() + 1;
  team.run(n, 16384, [&](std::int64_t begin, std::int64_t end, int) {
    Simplices simplices(*topology);
    for (std::int64_t a = begin; a < end; ++a) {
      const float* entries = simplices.of(a);
      double sum = 0;
      for (int k = 0; k < corners; ++k) {
        double row = entries[k * corners + k] * corner_weight[k * n + a];
        for (int l = k + 1; l < corners; ++l)
          row += 2.0 * entries[k * corners + l] * corner_weight[l * n + a];
        sum += row * corner_weight[k * n + a];
      }
      out[a] = static_cast<float>(sum * scale());
    }
  });
}

}  // namespace densecrf
