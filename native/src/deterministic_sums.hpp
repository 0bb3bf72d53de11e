// Sums over pixels that do not depend on the number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "densecrf/parallel.hpp"

namespace densecrf {

inline constexpr std::int64_t kChunk = 8192;

// Calls chunk(begin, end, sums) for chunks of pixels; adds their sums in the order of the chunks,
// whichever thread made them.
template <std::size_t Sums, class Chunk>
std::array<double, Sums> sum_over_chunks(std::int64_t n, Team& team, Chunk&& chunk) {
  std::vector<std::array<double, Sums>> parts(static_cast<std::size_t>((n + kChunk - 1) / kChunk),
                                              std::array<double, Sums>{});
  team.run(n, kChunk, [&](std::int64_t begin, std::int64_t end, int) {
    chunk(begin, end, parts[static_cast<std::size_t>(begin / kChunk)].data());
  });
  std::array<double, Sums> total{};
  for (const auto& part : parts)
    for (std::size_t s = 0; s < Sums; ++s) total[s] += part[s];
  return total;
}

}  // namespace densecrf
