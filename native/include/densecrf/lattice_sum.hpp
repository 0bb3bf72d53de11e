// The sum Σ_c w_c k_c of lattice filters, and mean field's update of it.
#pragma once

#include <array>
#include <memory>
#include <vector>

#include "densecrf/filter.hpp"
#include "densecrf/pixelwise.hpp"

namespace densecrf {

class BlurredLattices;
struct Entries;

struct LatticeSum {
  struct Term {
    const Lattice* lattice;
    double weight;
  };
  std::vector<Term> terms;
  Blur blur;
  // Kernels that are given by their entries, or null. With them there may be no terms. For
  // labelling.hpp and double_filter.hpp's ordered_double; other functions take sums without.
  const Entries* entries = nullptr;

  std::int64_t pixels() const;
};

// out = Σ_c w_c k_c in, label-major planes in and out.
void filter_sum(const LatticeSum& sum, Planes planes, const float* in, float* out, Team& team);

// The same with one filter after the other.
void filter_one_by_one(const LatticeSum& sum, Planes planes, const float* in, float* out,
                       Team& team);

// Mean field's iterations: filter and update in one. The filtered planes are never stored where the
// lattices are small beside the planes.
class MeanField {
 public:
  // phi, (labels, n), and own, which may be null, must outlive this; so must the sum.
  MeanField(const LatticeSum& sum, Planes planes, const float* phi, const float* own);
  ~MeanField();

  // out = softmax(filter_sum(y) - own · y - phi), without the second term where own is null; in
  // place where out == y. With `more`, this step's `out`, unchanged, is the next one's `y`: a
  // single thread splats each tile of it at once.
  void step(const float* y, float* out, bool more, Team& team);

 private:
  const LatticeSum& sum_;
  Planes planes_;
  const float *phi_, *own_;
  std::unique_ptr<BlurredLattices> blurred_;  // of the next step's y, where there are any
};

// A projected gradient step of the quadratic relaxation in the Potts model, with one filter call
// for the labels that carry anything: see PixelKernels::quadratic_step. It is taken at v = y +
// share · (y - before); before may be null where share is 0, c where it is zeros. `rest`, or null,
// has the least phi of labels that are left out.
struct QuadraticStep {
  // The objective at v, the slope of the move from y along the gradient, Σ|out - y|, and whether
  // any label that carries nothing, or is left out, gains mass: 0 where none does.
  std::array<double, 4> sums;
  std::vector<std::int64_t> present;  // the labels that carry anything, ascending
};
QuadraticStep quadratic_step(const LatticeSum& sum, Planes planes, const float* phi, const float* y,
                             const float* before, float share, const float* own, const float* c,
                             const float* strength, const float* rest, float* out, Team& team);

}  // namespace densecrf
