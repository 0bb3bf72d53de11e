// Where a feature point lies in the permutohedral lattice.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>

#include "densecrf/lattice.hpp"

namespace densecrf {

inline constexpr double kLargestCoordinate = 1 << 29;

// The simplex that encloses one feature point (Adams et al., section 3.1), in Scalar arithmetic.
// The usual dimensions are known to the compiler, as D; 0 stands for any.
template <class Scalar, int D>
class Simplex {
 public:
  explicit Simplex(int dimension) : any_(dimension) {
    const int d = this->d();
    // The filter's total variance is that of the blur, 2/3 (d+1)^2 in lattice units per axis.
    const auto inverse_std = static_cast<Scalar>(std::sqrt(2.0 / 3.0) * (d + 1));
    for (int i = 0; i < d; ++i)
      scale_[i] = static_cast<Scalar>(inverse_std / std::sqrt((i + 1.0) * (i + 2.0)));
  }

  template <class Real>
  void locate(const Real* feature) {
    elevate(feature);
    round_to_remainder_zero();
    weigh();
  }

  // A bound on the coordinates of points whose features are, in absolute value, at most these.
  double largest_coordinate(const double* features) const {
    double sum = 0, most = 0;
    for (int i = 0; i < d(); ++i) {
      const double scaled = features[i] * static_cast<double>(scale_[i]);
      sum += scaled;
      most = most > (i + 1) * scaled ? most : (i + 1) * scaled;
    }
    return sum + most;
  }

  // Coordinates (the first d of d+1, which sum to zero) of corner k, the one of remainder k.
  void key(int k, std::int32_t* out) const {
    for (int i = 0; i < d(); ++i) out[i] = zero_[i] + k - (rank_[i] > d() - k ? d() + 1 : 0);
  }

  // Of remainder 0.
  std::int32_t zero(int i) const { return zero_[i]; }
  Scalar weight(int k) const { return weight_[k]; }
  int rank(int i) const { return rank_[i]; }

  // A number for each axis; all of them together tell simplices apart.
  std::int32_t signature(int i) const { return zero_[i] + rank_[i]; }

 private:
  template <class Real>
  void elevate(const Real* feature) {
    Scalar sum = 0;
    for (int i = d(); i > 0; --i) {
      const Scalar scaled = static_cast<Scalar>(feature[i - 1]) * scale_[i - 1];
      elevated_[i] = sum - i * scaled;
      sum += scaled;
    }
    elevated_[0] = sum;
    for (int i = 0; i <= d(); ++i)
      if (!(std::fabs(elevated_[i]) < kLargestCoordinate))
        throw std::out_of_range("features too far from the origin");
  }

  // Nearest lattice point all of whose coordinates are multiples of d+1, and the rank of each axis.
  void round_to_remainder_zero() {
    int sum = 0;
    for (int i = 0; i <= d(); ++i) {
      const double shifted = elevated_[i] / (d() + 1) + 0.5;
      const int whole = static_cast<int>(shifted), nearest = whole - (shifted < whole);  // floor
      zero_[i] = nearest * (d() + 1);
      sum += nearest;
      rank_[i] = 0;
    }
    for (int i = 0; i <= d(); ++i) offset_[i] = elevated_[i] - zero_[i];
    for (int i = 0; i < d(); ++i)
      for (int j = i + 1; j <= d(); ++j) {
        const int less = offset_[i] < offset_[j];
        rank_[i] += less;
        rank_[j] += 1 - less;
      }
    for (int i = 0; i <= d(); ++i) {  // back onto the plane of zero sum
      rank_[i] += sum;
      if (rank_[i] < 0) {
        rank_[i] += d() + 1;
        zero_[i] += d() + 1;
      } else if (rank_[i] > d()) {
        rank_[i] -= d() + 1;
        zero_[i] -= d() + 1;
      }
      // Far from the origin, single precision no longer tells neighbouring lattice points apart.
      if (rank_[i] < 0 || rank_[i] > d())
        throw std::out_of_range("features too far from the origin");
    }
  }

  // Corner k's weight is the difference of two neighbours in the order of ranks.
  void weigh() {
    Scalar by_rank[kMost + 1] = {};
    for (int i = 0; i <= d(); ++i) by_rank[rank_[i]] = (elevated_[i] - zero_[i]) / (d() + 1);
    weight_[0] = by_rank[d()] + (1 - by_rank[0]);
    for (int k = 1; k <= d(); ++k) weight_[k] = by_rank[d() - k] - by_rank[d() + 1 - k];
    for (int k = 0; k <= d(); ++k)
      weight_[k] = weight_[k] > 0 ? weight_[k] : 0;  // rounding may go below
  }

  int d() const { return D > 0 ? D : any_; }

  static constexpr int kMost = D > 0 ? D : kMaxDimension;
  int any_;
  Scalar scale_[kMost];
  Scalar elevated_[kMost + 1];
  Scalar offset_[kMost + 1];  // from the nearest point of remainder zero
  Scalar weight_[kMost + 1];
  std::int32_t zero_[kMost + 1];
  int rank_[kMost + 1];
};

}  // namespace densecrf
