// The diagonal of the filter's matrix, exactly.
#include <algorithm>
#include <cmath>
#include <cstring>
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

// Sets of axes, as bits of their sum of 2^axis, for each vertex: those along which one can step
// from it, to the given side, without coming to a missing vertex. The paths take their axes in
// ascending or descending order.
class Passable {
 public:
  Passable(const Topology& t, int side, bool ascending, Team& team)
      : words_(((std::int64_t{1} << (t.dimension + 1)) + 63) / 64),
        sets_(static_cast<std::size_t>((t.vertices + std::int64_t{1}) * words_), 0) {
    for (std::int64_t v = 0; v < t.vertices; ++v) sets_[v * words_] = 1;  // the empty set
    std::vector<std::uint64_t> after(sets_);
    for (int i = 0; i <= t.dimension; ++i) {  // paths that begin with axis j, then those so far
      const int j = ascending ? t.dimension - i : i;
      const std::int32_t* axis = t.axis(j);
      team.run(t.vertices, 4096, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t v = begin; v < end; ++v) {
          const std::uint64_t* from = sets_.data() + axis[2 * v + side] * words_;
          const std::uint64_t* own = sets_.data() + v * words_;
          std::uint64_t* to = after.data() + v * words_;
          const std::int64_t farther = j < 6 ? 0 : std::int64_t{1} << (j - 6);
          for (std::int64_t w = 0; w < words_; ++w) to[w] = own[w];
          for (std::int64_t w = 0; w + farther < words_; ++w)
            to[w + farther] |= j < 6 ? from[w] << (1 << j) : from[w];
        }
      });
      sets_.swap(after);
    }
  }

  // Sets 8 · number to 8 · number + 7 of a vertex.
  std::uint8_t eight(std::int64_t vertex, std::int64_t number) const {
    return static_cast<std::uint8_t>(sets_[vertex * words_ + number / 8] >> (number % 8 * 8));
  }

 private:
  std::int64_t words_;
  std::vector<std::uint64_t> sets_;
};

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
  Edges(const Topology& topology, Team& team) : t_(topology), corners_(topology.dimension + 1) {
    for (int steps = 0; steps <= topology.dimension; ++steps)
      for (int code = 0; code < kCodes; ++code)
        entries_.push_back(entry(steps, code % 3, code / 3));
    constexpr std::int64_t kBytesPerPixel = 64;
    if (corners_ >= 3 && corners_ < 32 &&
        topology.vertices <= (kBytesPerPixel * topology.pixels) >> corners_)
      store_codes(team);
  }

  bool stored() const { return codes_.size() > 0; }

  // Where the codes of a vertex are, by sets of axes, and the entries of so many steps, by codes.
  const std::uint8_t* codes(std::int32_t vertex) const {
    return codes_.data() + (static_cast<std::int64_t>(vertex) << corners_);
  }
  const double* entries(int steps) const { return entries_.data() + steps * kCodes; }

  // The code of corners k <= l of a simplex with these vertices and ranks.
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

 private:
  static constexpr int kCodes = 9;  // up to two paths inside and two outside

  double entry(int steps, int inside, int outside) const {
    if (steps == 0) return 1 + std::ldexp(outside, -corners_);
    return 0.5 * (std::ldexp(inside, -steps) + std::ldexp(outside, steps - corners_));
  }

  // The number of paths() for every vertex and every set of axes, eight sets at a time. The way
  // from l to k along ascending axes is that from k to l along descending ones.
  void store_codes(Team& team) {
    std::uint64_t bits[256], reversed[256];  // of a byte, each in a byte of its own
    for (int byte = 0; byte < 256; ++byte) {
      std::uint8_t one[8], other[8];
      for (int i = 0; i < 8; ++i) one[i] = other[7 - i] = byte >> i & 1;
      std::memcpy(&bits[byte], one, 8);
      std::memcpy(&reversed[byte], other, 8);
    }
    const std::int64_t eights = std::int64_t{1} << (corners_ - 3);
    codes_.reset(static_cast<std::int64_t>(t_.vertices) << corners_);
    for (const bool ascending : {true, false}) {
      const Passable inside(t_, 1, ascending, team), outside(t_, 0, ascending, team);
      team.run(t_.vertices, 2048, [&](std::int64_t begin, std::int64_t end, int) {
        for (std::int64_t v = begin; v < end; ++v)
          for (std::int64_t e = 0; e < eights; ++e) {
            std::uint8_t* to = codes_.data() + (v << corners_) + 8 * e;
            std::uint64_t eight = 0;  // sums of bytes without a carry
            if (!ascending) std::memcpy(&eight, to, 8);
            eight += bits[inside.eight(v, e)];
            eight += 3 * reversed[outside.eight(v, eights - 1 - e)];  // the complements
            std::memcpy(to, &eight, 8);
          }
      });
    }
  }

  const Topology& t_;
  int corners_;
  std::vector<double> entries_;  // by number of axes and code
  Buffer<std::uint8_t> codes_;   // (vertices, 2^(d+1)), or empty
};

// For pixels [begin, end). The usual numbers of corners are known to the compiler; 0 stands for
// any.
template <int Corners>
void diagonal_of(const Lattice& lattice, const Edges& edges, double* out, std::int64_t begin,
                 std::int64_t end) {
  const Topology& t = *lattice.topology;
  const std::int64_t n = t.pixels;
  const int corners = Corners > 0 ? Corners : t.dimension + 1;
  constexpr int kMost = Corners > 0 ? Corners : kMaxDimension + 1;
  const double scale = 1 / (1 + std::ldexp(1.0, -t.dimension));  // unrounded
  const bool stored = edges.stored();
  for (std::int64_t a = begin; a < end; ++a) {
    std::int32_t vertex[kMost];
    std::uint8_t rank[kMost];
    double weight[kMost];
    std::uint32_t axes[kMost + 1] = {};  // from corner 0 to each, as bits; of use where they fit
    for (int i = 0; i < corners; ++i) {
      vertex[i] = t.corner[i * n + a];
      rank[i] = t.rank[i * n + a];
      weight[i] = lattice.corner_weight[i * n + a];
      axes[corners - rank[i]] = i < 32 ? 1u << i : 0;
    }
    for (int k = 1; k < corners; ++k) axes[k] |= axes[k - 1];
    double sum = 0;
    const auto add = [&](auto&& entry) {
      for (int k = 0; k < corners; ++k) {
        double row = entry(k, k) * weight[k];
        for (int l = k + 1; l < corners; ++l) row += 2 * entry(k, l) * weight[l];
        sum += row * weight[k];
      }
    };
    if (stored)
      add([&](int k, int l) {
        return edges.entries(l - k)[edges.codes(vertex[k])[axes[l] ^ axes[k]]];
      });
    else
      add([&](int k, int l) { return edges.entries(l - k)[edges.paths(vertex, rank, k, l)]; });
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
  const Edges edges(*topology, team);
  team.run(pixels(), 2048,
           [&](std::int64_t begin, std::int64_t end, int) { part(*this, edges, out, begin, end); });
}

}  // namespace densecrf
