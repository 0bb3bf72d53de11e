// The ICM moves of a labelling, with its energy.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "densecrf/lattice_sum.hpp"

namespace densecrf {

// The row sums of K, with the bits that potts_icm_moves finds for a label that all pixels have.
void total_mass(const LatticeSum& sum, std::int64_t n, float* out, Team& team);

// Each pixel's best label given all others', or its own where that is no worse, and the decrease of
// the energy: see PixelKernels::icm_moves. `mass` and `own` are the row sums and the diagonal of K.
// Returns unary and pairwise costs, and the number of pixels that gain. Throws std::out_of_range
// where a label is none of the planes'.
std::array<double, 3> potts_icm_moves(const LatticeSum& sum, Planes planes, const float* phi,
                                      const std::int64_t* labels, const float* mass,
                                      const float* own, std::int64_t* best, float* gain,
                                      Team& team);

}  // namespace densecrf
