// The diagonal of the filter's matrix, exactly.
#include <bitset>
#include <vector>

#include "densecrf/lattice.hpp"

namespace densecrf {

namespace {

using Axes = std::bitset<kMaxDimension + 1>;

// Follows the one path that steps along the axes in `chosen`, in ascending order; whether it leads
// from one vertex to the other, none on the way missing.
bool leads(const Topology& t, std::int32_t from, std::int32_t to, const Axes& chosen, int side) {
  std::int32_t at = from;
  for (int j = 0; j <= t.dimension; ++j) {
    if (!chosen[static_cast<std::size_t>(j)]) continue;
    at = t.axis(j)[2 * static_cast<std::int64_t>(at) + side];
    if (at == t.vertices) return false;
  }
  return at == to;
}

// Entries of the blurs' product between the corners of one simplex, both orders averaged.
//
// Corners k and l > k differ by one step along each axis of rank d-l+1 .. d-k; since steps along all
// d+1 axes cancel, the complement of those axes leads back the other way. The reversed order walks
// the same paths backwards, so the mean of both orders is the mean of both directions.
class Simplices {
 public:
  explicit Simplices(const Topology& topology)
      : t_(topology),
        corners_(topology.dimension + 1),
        vertex_(static_cast<std::size_t>(corners_), -1),
        axis_of_rank_(static_cast<std::size_t>(corners_)),
        entries_(static_cast<std::size_t>(corners_ * corners_)) {
    for (int i = 0; i < corners_; ++i) all_.set(static_cast<std::size_t>(i));
  }

  // Entry (k, l), k <= l, for pixel a; neighbouring pixels often share a simplex.
  const float* of(std::int64_t a) {
    bool same = true;
    for (int k = 0; k < corners_; ++k) {
      const std::int32_t v = t_.corner[k * t_.pixels + a];
      same = same && vertex_[static_cast<std::size_t>(k)] == v;
      vertex_[static_cast<std::size_t>(k)] = v;
    }
    if (!same) compute(a);
    return entries_.data();
  }

 private:
  void compute(std::int64_t a) {
    for (int i = 0; i < corners_; ++i)
      axis_of_rank_[t_.rank[i * t_.pixels + a]] = static_cast<std::size_t>(i);
    for (int k = 0; k < corners_; ++k) {
      const std::int32_t at = vertex_[static_cast<std::size_t>(k)];
      entry(k, k) = 1 + half_to_the(corners_) * static_cast<float>(leads(t_, at, at, all_, 0) +
                                                                   leads(t_, at, at, all_, 1));
      Axes inside;
      for (int l = k + 1; l < corners_; ++l) {
        inside.set(axis_of_rank_[static_cast<std::size_t>(corners_ - l)]);
        const Axes outside = all_ & ~inside;
        const std::int32_t to = vertex_[static_cast<std::size_t>(l)];
        const auto paths = [&](const Axes& axes, int there) {
          return static_cast<float>(leads(t_, at, to, axes, there) +
                                    leads(t_, to, at, axes, 1 - there));
        };
        entry(k, l) = 0.5f * (half_to_the(l - k) * paths(inside, 1) +
                              half_to_the(corners_ - (l - k)) * paths(outside, 0));
      }
    }
  }

  float& entry(int k, int l) { return entries_[static_cast<std::size_t>(k * corners_ + l)]; }
  static float half_to_the(int steps) {
    float product = 1;
    for (int i = 0; i < steps; ++i) product *= 0.5f;
    return product;
  }

  const Topology& t_;
  int corners_;
  Axes all_;
  std::vector<std::int32_t> vertex_;
  std::vector<std::size_t> axis_of_rank_;
  std::vector<float> entries_;
};

}  // namespace

void Lattice::diagonal(float* out, Team& team) const {
  const std::int64_t n = pixels();
  const int corners = dimension() + 1;
  team.run(n, 2048, [&](std::int64_t begin, std::int64_t end, int) {
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
