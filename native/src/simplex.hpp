// Where feature points lie in the permutohedral lattice.
#pragma once

#include <cmath>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "densecrf/lattice.hpp"
#include "simd/simplex_kernels.hpp"

namespace densecrf {

// The simplices that enclose some feature points, in Scalar arithmetic.
template <class Scalar>
class Simplices {
 public:
  static constexpr int kBlock = SimplexKernels::kBlock;

  explicit Simplices(int d)
      : d_(d),
        scale_(static_cast<std::size_t>(d)),
        scratch_(3 * size()),
        zero_(size()),
        rank_(size()),
        weight_(size()) {
    // The filter's total variance is that of the blur, 2/3 (d+1)^2 in lattice units per axis.
    const auto inverse_std = static_cast<Scalar>(std::sqrt(2.0 / 3.0) * (d + 1));
    for (int i = 0; i < d; ++i)
      scale_[static_cast<std::size_t>(i)] =
          static_cast<Scalar>(inverse_std / std::sqrt((i + 1.0) * (i + 2.0)));
  }

  // Of up to kBlock points, row-major.
  template <class Real>
  void locate(const Real* features, int count) {
    if (!simplex_kernels().locate<Real, Scalar>()(
            features, d_, count,
            {scale_.data(), scratch_.data(), zero_.data(), rank_.data(), weight_.data()}))
      throw std::out_of_range("features too far from the origin");
  }

  // One of them.
  struct Simplex {
    const Simplices& all;
    int number;

    // Coordinates (the first d of d+1, which sum to zero) of corner k, the one of remainder k.
    void key(int k, std::int32_t* out) const {
      for (int i = 0; i < all.d_; ++i)
        out[i] = zero(i) + k - (rank(i) > all.d_ - k ? all.d_ + 1 : 0);
    }
    // A number for each axis; all of them together tell simplices apart.
    std::int32_t signature(int i) const { return zero(i) + rank(i); }
    // Coordinates of the corner of remainder 0.
    std::int32_t zero(int i) const { return all.zero_[all.at(i, number)]; }
    std::int32_t rank(int i) const { return all.rank_[all.at(i, number)]; }
    float weight(int k) const { return all.weight_[all.at(k, number)]; }
  };
  Simplex operator[](int number) const { return {*this, number}; }

  // A bound on the coordinates of points whose features are, in absolute value, at most these.
  double largest_coordinate(const double* features) const {
    double sum = 0, most = 0;
    for (int i = 0; i < d_; ++i) {
      const double scaled = features[i] * static_cast<double>(scale_[static_cast<std::size_t>(i)]);
      sum += scaled;
      most = std::max(most, (i + 1) * scaled);
    }
    return sum + most;
  }

 private:
  std::size_t size() const { return static_cast<std::size_t>((d_ + 1) * kBlock); }
  static std::size_t at(int i, int number) { return static_cast<std::size_t>(i * kBlock + number); }

  int d_;
  std::vector<Scalar> scale_, scratch_;
  std::vector<std::int32_t> zero_, rank_;
  std::vector<float> weight_;
};

}  // namespace densecrf
