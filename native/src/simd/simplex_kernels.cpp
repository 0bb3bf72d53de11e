#include "simd/simplex_kernels.hpp"

#include "simd/isa.hpp"

namespace densecrf {
namespace {

constexpr int kBlock = SimplexKernels::kBlock;
constexpr float kLargestCoordinate = 1 << 29;

// The usual dimensions are known to the compiler, as D; 0 stands for any.
template <int D, class Real, class Scalar>
bool locate_points(const Real* features, int any, int count,
                   const SimplexKernels::Simplices<Scalar>& out) {
  const int d = D > 0 ? D : any, corners = d + 1;
  Scalar* elevated = out.scratch;
  Scalar* offset = elevated + corners * kBlock;  // from the nearest point of remainder zero
  Scalar* by_rank = offset + corners * kBlock;
  std::int32_t *zero = out.zero, *rank = out.rank;

  Scalar sums[kBlock] = {};
  for (int i = d; i > 0; --i)
    DENSECRF_EACH (a, count) {
      const Scalar scaled = static_cast<Scalar>(features[a * d + i - 1]) * out.scale[i - 1];
      elevated[i * kBlock + a] = sums[a] - static_cast<Scalar>(i) * scaled;
      sums[a] += scaled;
    }
  DENSECRF_EACH (a, count) elevated[a] = sums[a];
  std::int32_t bad = 0;
  for (int i = 0; i < corners; ++i)
    DENSECRF_EACH (a, count) {
      const Scalar size =
          elevated[i * kBlock + a] < 0 ? -elevated[i * kBlock + a] : elevated[i * kBlock + a];
      bad |= size < static_cast<Scalar>(kLargestCoordinate) ? 0 : 1;
    }
  if (bad) return false;

  // Nearest lattice point all of whose coordinates are multiples of d+1, and the rank of each axis.
  std::int32_t beyond[kBlock] = {};
  for (int i = 0; i < corners; ++i)
    DENSECRF_EACH (a, count) {
      const int at = i * kBlock + a;
      const Scalar exact = elevated[at] / static_cast<Scalar>(corners);
      std::int32_t nearest = static_cast<std::int32_t>(exact);
      nearest -= static_cast<Scalar>(nearest) > exact ? 1 : 0;  // not above
      nearest += exact - static_cast<Scalar>(nearest) >= static_cast<Scalar>(0.5) ? 1 : 0;
      zero[at] = nearest * corners;
      beyond[a] += nearest;
      rank[at] = 0;
      offset[at] = elevated[at] - static_cast<Scalar>(zero[at]);
    }
  for (int i = 0; i < d; ++i)
    for (int j = i + 1; j < corners; ++j)
      DENSECRF_EACH (a, count) {
        const std::int32_t less = offset[i * kBlock + a] < offset[j * kBlock + a] ? 1 : 0;
        rank[i * kBlock + a] += less;
        rank[j * kBlock + a] += 1 - less;
      }
  for (int i = 0; i < corners; ++i)  // back onto the plane of zero sum
    DENSECRF_EACH (a, count) {
      const int at = i * kBlock + a;
      const std::int32_t moved = rank[at] + beyond[a];
      const std::int32_t turn = moved < 0 ? corners : moved > d ? -corners : 0;
      rank[at] = moved + turn;
      zero[at] += turn;
      // Far from the origin, single precision no longer tells neighbouring lattice points apart.
      bad |= rank[at] < 0 || rank[at] > d ? 1 : 0;
      offset[at] = (elevated[at] - static_cast<Scalar>(zero[at])) / static_cast<Scalar>(corners);
    }
  if (bad) return false;

  // Corner k's weight is the difference of two neighbours in the order of ranks.
  for (int r = 0; r < corners; ++r) {
    DENSECRF_EACH (a, count) by_rank[r * kBlock + a] = 0;
    for (int i = 0; i < corners; ++i)
      DENSECRF_EACH (a, count) {
        const Scalar other = by_rank[r * kBlock + a];
        by_rank[r * kBlock + a] = rank[i * kBlock + a] == r ? offset[i * kBlock + a] : other;
      }
  }
  DENSECRF_EACH (a, count) {
    const Scalar first = by_rank[d * kBlock + a] + (1 - by_rank[a]);
    out.weight[a] = static_cast<float>(first > 0 ? first : 0);  // rounding may go below
  }
  for (int k = 1; k < corners; ++k)
    DENSECRF_EACH (a, count) {
      const Scalar share = by_rank[(d - k) * kBlock + a] - by_rank[(corners - k) * kBlock + a];
      out.weight[k * kBlock + a] = static_cast<float>(share > 0 ? share : 0);
    }
  return true;
}

template <class Real, class Scalar>
bool locate(const Real* features, int d, int count, const SimplexKernels::Simplices<Scalar>& out) {
  return d == 2   ? locate_points<2>(features, d, count, out)
         : d == 3 ? locate_points<3>(features, d, count, out)
         : d == 5 ? locate_points<5>(features, d, count, out)
                  : locate_points<0>(features, d, count, out);
}

}  // namespace

extern const SimplexKernels DENSECRF_CONCAT(simplex_kernels_, DENSECRF_ISA);
const SimplexKernels DENSECRF_CONCAT(simplex_kernels_, DENSECRF_ISA) = {
    locate<float, float>, locate<double, float>, locate<float, double>, locate<double, double>};

}  // namespace densecrf
