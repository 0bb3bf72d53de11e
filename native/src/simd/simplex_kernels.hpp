// Where feature points lie in the permutohedral lattice (Adams et al., section 3.1), many at a
// time. Compiled once for each instruction set like the loops of the filters (row_kernels.hpp), all
// of which give the same bits.
#pragma once

#include <cstdint>

namespace densecrf {

struct SimplexKernels {
  static constexpr int kBlock = 64;  // pixels at a time

  // The simplices that enclose some points, in single or double precision, by axis i or corner k:
  // arrays of (d+1, kBlock).
  template <class Scalar>
  struct Simplices {
    const Scalar* scale;  // (d): what features are multiplied by
    Scalar* scratch;      // (3, d+1, kBlock)
    std::int32_t* zero;   // coordinates of the corner of remainder zero
    std::int32_t* rank;   // the order of the axes
    float* weight;        // barycentric weights of the corners
  };
  // Locates `count` features, row-major; false where one is too far from the origin.
  template <class Real, class Scalar>
  using Locate = bool(const Real* features, int d, int count, const Simplices<Scalar>& out);

  Locate<float, float>* single_floats;
  Locate<double, float>* single_doubles;
  Locate<float, double>* double_floats;
  Locate<double, double>* double_doubles;

  template <class Real, class Scalar>
  Locate<Real, Scalar>* locate() const;
};

template <>
inline auto SimplexKernels::locate<float, float>() const -> Locate<float, float>* {
  return single_floats;
}
template <>
inline auto SimplexKernels::locate<double, float>() const -> Locate<double, float>* {
  return single_doubles;
}
template <>
inline auto SimplexKernels::locate<float, double>() const -> Locate<float, double>* {
  return double_floats;
}
template <>
inline auto SimplexKernels::locate<double, double>() const -> Locate<double, double>* {
  return double_doubles;
}

// Those of the instruction set that row_kernels() has.
const SimplexKernels& simplex_kernels();

}  // namespace densecrf
