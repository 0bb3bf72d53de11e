// The filters once more in double precision, for certificates: the same lattices, whose stored
// weights are taken as exact numbers, symmetrised unless said otherwise. Rounding errors stay
// within what docs/mathematics.md derives for any order of summation.
#pragma once

#include <cstdint>

#include "densecrf/lattice_sum.hpp"

namespace densecrf {

// out_ca = Σ_b K_ab in_cb, K = Σ weight · ½ (k + kᵀ).
void apply_double(const LatticeSum& sum, const double* in, double* out, int channels, Team& team);

// out_a = Σ_b Σ_c w_c k_c,ab, with the sum's own order of blurs.
void row_sums(const LatticeSum& sum, double* out, Team& team);

// out_ca = Σ_b K_ab s(t_a, t_b), with s as for filter_ordered. `mass` is Σ_b K_ab of the
// sum's terms, without its entries. `offsets` may be
// null; `extents` are the least and the largest score of each channel.
void ordered_double(const LatticeSum& sum, const double* mass, const float* scores,
                    const float* offsets, const float* extents, double* out, int channels,
                    LevelsOf<double> levels, Team& team);

// Σ_ab K_ab μ(x_a, x_b) with the pixels' own terms: for μ = [x_a ≠ x_b] where `costs` is null, else
// for the symmetric (labels, labels) matrix.
double pairs_double(const LatticeSum& sum, const std::int64_t* x, int labels, const double* costs,
                    Team& team);

}  // namespace densecrf
