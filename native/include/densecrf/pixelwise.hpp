// What the solvers do to each pixel on its own, over label-major arrays (labels, n).
#pragma once

#include <cstdint>

#include "densecrf/parallel.hpp"

namespace densecrf {

// out_a = the point of the probability simplex nearest to z_a; in place where out == z.
void project_simplex(const float* z, float* out, int labels, std::int64_t n, Team& team);

// Σ_a min_i (phi_ai + factor · r_ai), summed in double.
double lower_bound(const float* phi, const float* r, float factor, int labels, std::int64_t n,
                   Team& team);

}  // namespace densecrf
