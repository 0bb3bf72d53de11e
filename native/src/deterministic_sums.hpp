// Sums over pixels that do not depend on the number of threads.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "densecrf/parallel.hpp"

namespace densecrf {

// Pixels of a chunk: enough chunks for many threads, and not many more. By the number of pixels
// alone.
inline std::int64_t chunk_of(std::int64_t n) {
  constexpr std::int64_t kTile = 128, kChunks = 64, kLeast = 8 * kTile, kMost = 64 * kTile;
  return std::clamp((n / kChunks + kTile - 1) / kTile * kTile, kLeast, kMost);
}

// Calls chunk(begin, end, sums) for chunks of pixels; adds their sums in the order of the chunks,
// whichever thread made them.
template <std::size_t Sums, class Chunk>
std::array<double, Sums> sum_over_chunks(std::int64_t n, Team& team, Chunk&& chunk) {
  const std::int64_t size = chunk_of(n);
  std::vector<std::array<double, Sums>> parts(static_cast<std::size_t>((n + size - 1) / size),
                                              std::array<double, Sums>{});
  team.run(n, size, [&](std::int64_t begin, std::int64_t end, int) {
    chunk(begin, end, parts[static_cast<std::size_t>(begin / size)].data());
  });
  std::array<double, Sums> total{};
  for (const auto& part : parts)
    for (std::size_t s = 0; s < Sums; ++s) total[s] += part[s];
  return total;
}

}  // namespace densecrf
