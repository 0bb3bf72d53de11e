// Other ways to filter in the order of the scores: the ones that the one-pass filter is measured
// against, and the paper's adaptive variant, which discretises nothing.
#pragma once

#include <cstdint>

#include "densecrf/filter.hpp"
#include "densecrf/lattice.hpp"
#include "densecrf/parallel.hpp"

namespace densecrf {

// The paper's Algorithm 3, literally: one filter call for [y_a >= y_b], one for [y_a <= y_b], each
// splatting a pixel to all levels above (below) its own. Scores within [0, 1].
void filter_algorithm3(const Lattice& lattice, const float* scores, float* out, int channels,
                       int levels, Blur blur, Team& team);

// The paper's Appendix B.2.1: every lattice point keeps a sorted list of the distinct scores that
// reach it, so the order is exact. Throws std::bad_alloc when the lists of one label would exceed
// max_entries (8 bytes each, three lists of lists at once).
void filter_adaptive(const Lattice& lattice, const float* scores, float* out, int channels,
                     Blur blur, std::int64_t max_entries, Team& team);

// Divide and conquer (Desmaison et al. 2016): sort by score, recurse on the halves, filter from
// each half into the other on a lattice of the pixels involved, built anew each time, as there. A
// small lattice misses vertices of the large one, so it is another operator; with `fixed` not null
// that lattice is used throughout: the exact order, but O(n) for each of the n filter calls.
void filter_divide_and_conquer(const float* features, std::int64_t n, int d, const float* weights,
                               const Lattice* fixed, const float* scores, float* out, int channels,
                               Blur blur, Team& team);

}  // namespace densecrf
