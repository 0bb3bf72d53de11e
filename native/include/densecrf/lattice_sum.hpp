// The sum Σ_c w_c k_c of lattice filters, and mean field's update of it.
#pragma once

#include <array>
#include <vector>

#include "densecrf/filter.hpp"
#include "densecrf/pixelwise.hpp"

namespace densecrf {

struct LatticeSum {
  struct Term {
    const Lattice* lattice;
    double weight;
  };
  std::vector<Term> terms;
  Blur blur;

  std::int64_t pixels() const { return terms.front().lattice->pixels(); }
};

// out = Σ_c w_c k_c in, label-major planes in and out.
void filter_sum(const LatticeSum& sum, Planes planes, const float* in, float* out, Team& team);

// The same with one filter after the other.
void filter_one_by_one(const LatticeSum& sum, Planes planes, const float* in, float* out,
                       Team& team);

// Filter and update: out = softmax(filter_sum(y) - own · y - phi), without the second term where
// own is null; in place where out == y. The filtered planes are never stored.
void mean_field_step(const LatticeSum& sum, Planes planes, const float* phi, const float* y,
                     const float* own, float* out, Team& team);

// A projected gradient step of the quadratic relaxation in the Potts model, with one filter call
// for the labels that carry anything: see PixelKernels::quadratic_step. It is taken at v = y +
// share · (y - before); before may be null where share is 0, c where it is zeros. Returns the
// objective at v, the slope of the move from y along the gradient, and Σ|out - y|.
std::array<double, 3> quadratic_step(const LatticeSum& sum, Planes planes, const float* phi,
                                     const float* y, const float* before, float share,
                                     const float* own, const float* c, const float* strength,
                                     float* out, Team& team);

}  // namespace densecrf
