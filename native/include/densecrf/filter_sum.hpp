// Several lattice filters at once, and what mean field does with their sum.
#pragma once

#include <vector>

#include "densecrf/filter.hpp"
#include "densecrf/pixelwise.hpp"

namespace densecrf {

struct Term {
  const Lattice* lattice;
  float factor;
};

// out = Σ factor · filtered, over the terms, label-major planes in and out.
void filter_sum(const std::vector<Term>& terms, Planes planes, const float* in, float* out,
                BlurOrder order, Team& team);

// The same with one filter after the other.
void filter_one_by_one(const std::vector<Term>& terms, Planes planes, const float* in, float* out,
                       BlurOrder order, Team& team);

// Mean field's answer to y: out = softmax(filter_sum(y) - own · y - phi), without the second term
// where own is null; in place where out == y. The sum is never written down.
void mean_field_step(const std::vector<Term>& terms, Planes planes, const float* phi,
                     const float* y, const float* own, float* out, BlurOrder order, Team& team);

}  // namespace densecrf
