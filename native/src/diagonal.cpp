// The diagonal of the filter's matrix, exactly.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <vector>

#include "densecrf/lattice.hpp"

namespace densecrf {

namespace {

// Some of the axes, in ascending order.
struct Axes {
  int count = 0;
  int axis[kMaxDimension + 2];
  void add_if(bool wanted, int j) {
    axis[count] = j;
    count += wanted;
  }
};

// Follows the one path that steps along these axes; whether it leads from one vertex to the other,
// none on the way missing. To its end in any case: an early exit would be mispredicted where most
// paths end.
int leads(const Topology& t, std::int32_t from, std::int32_t to, const Axes& axes, int side) {
  std::int32_t at = from;
  for (int i = 0; i < axes.count; ++i)
    at = t.axis(axes.axis[i])[2 * static_cast<std::int64_t>(at) + side];
  return at == to;
}

// Entries of the blurs' product between the corners of a simplex, both orders averaged.
//
// Corners k and l > k differ by one step along each axis of rank d-l+1 .. d-k; since steps along
// all d+1 axes cancel, the complement of those axes leads back the other way. The reversed order
// walks the same paths backwards, so the mean of both orders is the mean of both directions.
//
// An edge from k to l belongs to many simplices and to more pixels: which of its paths exist is
// stored, by its first vertex and its set of axes, where there is room for it.
class Edges {
 public:
  explicit Edges(const Topology& topology) : t_(topology), corners_(topology.dimension + 1) {
    for (int steps = 0; steps <= topology.dimension; ++steps)
      for (int code = 0; code < kCodes; ++code)
        entries_.push_back(entry(steps, code % 3, code / 3));
    constexpr std::int64_t kBytesPerPixel = 64;
    if (corners_ < 32 && topology.vertices <= (kBytesPerPixel * topology.pixels) >> corners_)
      known_ = std::vector<std::atomic<std::uint8_t>>(static_cast<std::size_t>(topology.vertices)
                                                      << corners_);
  }

  // The entry of corners k <= l of a simplex with these vertices and ranks. `from` and `to` are the
  // axes, as bits, along which these corners lie from corner 0.
  double between(const std::int32_t* vertex, const std::uint8_t* rank, int k, int l,
                 std::uint32_t from, std::uint32_t to) {
    const double* entries = entries_.data() + (l - k) * kCodes;
    if (known_.empty()) return entries[paths(vertex, rank, k, l)];
    std::atomic<std::uint8_t>& known =
        known_[(static_cast<std::size_t>(vertex[k]) << corners_) + (to ^ from)];
    int code = known.load(std::memory_order_relaxed) - 1;
    if (code < 0) {  // another thread may find the same at the same time
      code = paths(vertex, rank, k, l);
      known.store(static_cast<std::uint8_t>(code + 1), std::memory_order_relaxed);
    }
    return entries[code];
  }

 private:
  static constexpr int kCodes = 9;  // up to two paths inside and two outside

  double entry(int steps, int inside, int outside) const {
    if (steps == 0) return 1 + std::ldexp(outside, -corners_);
    return 0.5 * (std::ldexp(inside, -steps) + std::ldexp(outside, steps - corners_));
  }

  int paths(const std::int32_t* vertex, const std::uint8_t* rank, int k, int l) const {
    Axes inside, outside;
    for (int i = 0; i < corners_; ++i) {
      const bool between = rank[i] > t_.dimension - l && rank[i] <= t_.dimension - k;
      inside.add_if(between, i);
      outside.add_if(!between, i);
    }
    const auto both = [&](const Axes& axes, int there) {
      return leads(t_, vertex[k], vertex[l], axes, there) +
             leads(t_, vertex[l], vertex[k], axes, 1 - there);
    };
    return both(inside, 1) + 3 * both(outside, 0);
  }

  const Topology& t_;
  int corners_;
  std::vector<double> entries_;                   // by number of axes and code
  std::vector<std::atomic<std::uint8_t>> known_;  // (vertices, 2^(d+1)): 1 + code, 0 is unknown
};

// For pixels [begin, end). The usual numbers of corners are known to the compiler; 0 stands for
// any.
template <int Corners>
void diagonal_of(const Lattice& lattice, Edges& edges, double* out, std::int64_t begin,
                 std::int64_t end) {
  const Topology& t = *lattice.topology;
  const std::int64_t n = t.pixels;
  const int corners = Corners > 0 ? Corners : t.dimension + 1;
  constexpr int kMost = Corners > 0 ? Corners : kMaxDimension + 1;
  const double scale = 1 / (1 + std::ldexp(1.0, -t.dimension));  // unrounded
  for (std::int64_t a = begin; a < end; ++a) {
    std::int32_t vertex[kMost];
    std::uint8_t rank[kMost];
    double weight[kMost];
    std::uint32_t axes[kMost + 1] = {};  // of each corner; of use where they fit
    for (int i = 0; i < corners; ++i) {
      vertex[i] = t.corner[i * n + a];
      rank[i] = t.rank[i * n + a];
      weight[i] = lattice.corner_weight[i * n + a];
      axes[corners - rank[i]] = i < 32 ? 1u << i : 0;
    }
    for (int k = 1; k < corners; ++k) axes[k] |= axes[k - 1];
    double sum = 0;
    for (int k = 0; k < corners; ++k) {
      double row = edges.between(vertex, rank, k, k, axes[k], axes[k]) * weight[k];
      for (int l = k + 1; l < corners; ++l)
        row += 2 * edges.between(vertex, rank, k, l, axes[k], axes[l]) * weight[l];
      sum += row * weight[k];
    }
    out[a] = sum * scale;
  }
}

}  // namespace

void Lattice::diagonal(double* out, Team& team) const {
  const int d = dimension();
  auto* part = d == 2   ? diagonal_of<3>
               : d == 3 ? diagonal_of<4>
               : d == 5 ? diagonal_of<6>
                        : diagonal_of<0>;
  Edges edges(*topology);
  team.run(pixels(), 2048,
           [&](std::int64_t begin, std::int64_t end, int) { part(*this, edges, out, begin, end); });
}

}  // namespace densecrf
